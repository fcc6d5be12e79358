//! Run queues, time slices, blocking, kicks between CPUs.

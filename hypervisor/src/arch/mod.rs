//! The only home of assembly and system registers; `fake` is its recording double on the host.

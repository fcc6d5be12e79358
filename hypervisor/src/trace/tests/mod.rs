mod exits;
mod rings;

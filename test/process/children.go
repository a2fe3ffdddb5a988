package process

// Running is a process that this one is the parent of.
type Running struct {
	PID     int
	Command string // its command line
}

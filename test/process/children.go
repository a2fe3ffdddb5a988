package process

// Running is a child of this process.
type Running struct {
	PID     int
	Command string // its command line
}

package definitions

// Read is read, for tests.
var Read = read

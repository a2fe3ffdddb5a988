// Package admin is the agent's HTTP server and its command socket: metrics, probes and status for
// everybody, and commands (snapshots, dead letters, profiles) at a Unix socket for the agent's own
// user. It also has the client that the commands of the command line use.
//
// Invariants:
//   - No command is accepted over HTTP, from whatever address: only the socket's file permissions
//     authenticate.
//   - No answer contains a secret or a part of an object, except resource, namespace and name in an
//     error.
//   - /healthz fails only if a restart helps: if the agent cannot acquire its own locks. An
//     unreachable bus or API server makes the agent unready, not dead.
//
// [Server.Run] runs the two HTTP servers, the checks and the liveness watchdog, and returns after
// all of them have ended.
package admin

// Command k9s is k9s of the version that go.mod has.
package main

import "github.com/derailed/k9s/cmd"

func main() { cmd.Execute() }

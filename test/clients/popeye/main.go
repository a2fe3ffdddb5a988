// Command popeye is popeye of the version that go.mod has.
package main

import "github.com/derailed/popeye/cmd"

func main() { cmd.Execute() }

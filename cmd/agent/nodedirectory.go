package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
)

func newNodeDirectoryCommand() *cobra.Command {
	var owner string
	cmd := &cobra.Command{
		Use:   "node-directory DIR",
		Short: "Create the directory on a node for an agent's checkpoint",
		Long: `Create the directory on a node in which an agent keeps its checkpoint (mode: node). Only the
agent's user may read it, and the command gives the directory and the checkpoint to that user.

A directory that the kubelet creates for a hostPath belongs to root, and the agent does not
run as root. So an init container that runs as root calls this command first.`,
		Example: `  kubecdc node-directory /var/lib/kubecdc --owner 65532:65532`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || !filepath.IsAbs(args[0]) {
				return usageError{
					errors.New("node-directory: name one directory by its absolute path, such as /var/lib/kubecdc"),
				}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			uid, gid, err := parseOwner(owner)
			if err != nil {
				return usageError{fmt.Errorf("node-directory: --owner: %w", err)}
			}
			if err := checkpoint.MakeDirectory(args[0], uid, gid); err != nil {
				return fmt.Errorf("node-directory: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&owner, "owner", "65532:65532", "`user` and group by their numbers, UID:GID")
	return cmd
}

func parseOwner(text string) (uid, gid int, err error) {
	user, group, both := strings.Cut(text, ":")
	u, err := strconv.ParseUint(user, 10, 31)
	g := u
	if err == nil && both {
		g, err = strconv.ParseUint(group, 10, 31)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("must be a user and a group by their numbers, such as 65532:65532, got %q", text)
	}
	return int(u), int(g), nil
}

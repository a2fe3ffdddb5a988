package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/bus/catalog"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromfile"
)

// addBus adds the flags for the location of the bus and for the credentials of the reader.
func (f *tailFlags) addBus(cmd *cobra.Command) {
	addOverrides(cmd, &f.Overrides)
	addTimeZone(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.Bus, "bus", "", "`URL` of the bus: "+catalog.URLs(catalog.Readable())+","+f.otherForms()+"\n"+
		"(default: the bus of a kubecdc that runs here, else "+agent.DefaultBus+")")
	fl.StringVar(&f.DataDir, "data-dir", "", "`directory` of the kubecdc that runs here, if it was started with one")
	fl.StringVar(&f.Config, "config", "",
		"read the bus of this configuration `file`, with credentials and certificates")
	fl.StringVar(&f.access.CAFile, "tls-ca", "",
		"`file` with the certificates of authorities to trust, instead of the system's; requires TLS")
	for _, of := range catalog.Flags() {
		addAccess(cmd, &f.access, "", of)
	}
}

// accessFlag is a flag of a driver, which is set in an Access.
type accessFlag struct {
	access *driver.Access
	name   string
}

// addAccess adds a flag of a driver under its name with a prefix.
func addAccess(cmd *cobra.Command, a *driver.Access, prefix string, of driver.Flag) {
	cmd.Flags().Var(accessFlag{a, of.Name}, prefix+of.Name, of.Help)
}

// addLogs adds the flags of drivers that name a log.
func addLogs(cmd *cobra.Command, a *driver.Access, prefix string) {
	for _, of := range catalog.Flags() {
		if of.Log {
			addAccess(cmd, a, prefix, of)
		}
	}
}

func (f accessFlag) String() string {
	if f.access == nil {
		return "" // the zero value, which pflag compares with
	}
	return f.access.Flags[f.name]
}

// Set implements pflag.Value.
func (f accessFlag) Set(value string) error {
	if f.access.Flags == nil {
		f.access.Flags = map[string]string{}
	}
	f.access.Flags[f.name] = value
	if value == "" {
		delete(f.access.Flags, f.name)
	}
	return nil
}

// Type implements pflag.Value.
func (f accessFlag) Type() string { return "string" }

// otherForms returns the values of --bus that are no URLs of buses, for people.
func (f *tailFlags) otherForms() string {
	if f.stdin {
		return " file:PATH, or - for standard input"
	}
	return " or file:PATH"
}

// source returns the bus of the flags. explain adds advice to an error of its Read.
func (f *tailFlags) source(stderr io.Writer) (_ consume.Source, explain func(error) error, _ error) {
	if name, ok := strings.CutPrefix(f.Bus, "file:"); ok {
		name = strings.TrimPrefix(name, "//")
		return &fromfile.File{Path: name}, func(err error) error {
			if wrong := (*fs.PathError)(nil); errors.As(err, &wrong) {
				err = wrong.Err
			}
			return fmt.Errorf("--bus file:%s: %w", name, err)
		}, nil
	}
	source, refused, err := f.OpenRecord(&f.access, stderr)
	switch {
	case errors.Is(err, agent.ErrNotABus):
		return nil, nil, usageError{
			fmt.Errorf("--bus: want %s (several servers separated by commas),%s", catalog.URLs(catalog.Readable()),
				f.otherForms()),
		}
	case err != nil:
		return nil, nil, err
	}
	return source, func(err error) error {
		explained := refused(err)
		if f.IsEmbedded() && explained == err { //nolint:errorlint // it was not wrapped
			return fmt.Errorf(
				"%w\nNo kubecdc with a bus of its own runs here; start one (kubecdc run), or give its URL (--bus)", err)
		}
		return explained
	}, nil
}

package kafka

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/filelock"
	"github.com/kubecdc/kubecdc/test/process"
)

//go:embed testdata/pom.xml
var pinned []byte

//go:embed testdata/log4j2.properties
var logging []byte

const (
	// The plugin's version is a pin like those of the jars.
	copyDependencies = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

	oldestJava = 17 // the minimum for brokers of Kafka 4

	// layout changes whenever install leaves other files than before.
	layout = "1"

	progressEvery = 15 * time.Second
)

// Available returns nil if a broker can be started. That needs a JDK and, unless the jars are in
// the cache, Maven. The error names the missing one.
func Available() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	version, err := javaVersion(ctx)
	if err != nil {
		return err
	}
	dir, err := cacheDir(version)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "installed")); err == nil {
		return nil
	}
	if _, err := exec.LookPath("mvn"); err != nil {
		return errors.New("no mvn: Kafka's jars come by Maven")
	}
	return nil
}

var majorVersion = regexp.MustCompile(`version "(\d+)`)

// javaVersion returns the version that java prints.
func javaVersion(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "java", "-XX:-UsePerfData", "-version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("no JDK %d: %w", oldestJava, err)
	}
	m := majorVersion.FindSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("no JDK %d: java -version says %q", oldestJava, out)
	}
	if major, _ := strconv.Atoi(string(m[1])); major < oldestJava {
		return "", fmt.Errorf("no JDK %d: java is version %s", oldestJava, m[1])
	}
	return string(out), nil
}

// cacheDir returns a name that changes with the sources of its files: an archive of loaded classes
// is valid for one JVM only.
func cacheDir(java string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cache directory: %w", err)
	}
	sum := sha256.New()
	for _, part := range []string{layout, copyDependencies, java, string(pom()), string(logging)} {
		fmt.Fprintln(sum, len(part), part)
	}
	return filepath.Join(cache, "kubecdc", fmt.Sprintf("kafka-%x", sum.Sum(nil)[:8])), nil
}

// installation is a directory of the cache.
type installation struct{ dir string }

func (i installation) path(name string) string { return filepath.Join(i.dir, name) }

// java returns a command line of the JVM, except for the class and its arguments. Java does not
// read TMPDIR, and the codecs leave their libraries in its temporary directory: tmp, which must
// exist.
func (i installation) java(tmp string, flags ...string) []string {
	argv := []string{
		"java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
		"-Djava.io.tmpdir=" + tmp,
	}
	argv = append(argv, flags...)
	return append(argv, "-Dlog4j2.configurationFile="+i.path("log4j2.properties"), "-Dlog4j2.disableJmx=true",
		"@"+i.path("classpath"))
}

// Install copies the jars unless they are there. It writes its progress to w, and nothing if there
// is nothing to do.
func Install(ctx context.Context, w io.Writer) error {
	_, err := install(ctx, w)
	return err
}

// install creates the directory unless it exists. Several processes may call it at once: one works,
// the others wait.
func install(ctx context.Context, w io.Writer) (installation, error) {
	version, err := javaVersion(ctx)
	if err != nil {
		return installation{}, err
	}
	dir, err := cacheDir(version)
	if err != nil {
		return installation{}, err
	}
	in := installation{dir: dir}
	if _, err := os.Stat(in.path("installed")); err == nil {
		return in, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return installation{}, fmt.Errorf("cache directory: %w", err)
	}
	unlock, err := lock(ctx, dir+".lock", w)
	if err != nil {
		return installation{}, err
	}
	defer unlock()
	if _, err := os.Stat(in.path("installed")); err == nil { // Installed by the process that held the lock.
		return in, nil
	}
	start := time.Now()
	if err := in.fill(ctx, w); err != nil {
		return installation{}, fmt.Errorf("install Kafka: %w", err)
	}
	fmt.Fprintf(w, "kafka: installed in %s: %s\n", time.Since(start).Round(time.Second), dir)
	return in, nil
}

// lock waits while another process installs.
func lock(ctx context.Context, path string, w io.Writer) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	start, said := time.Now(), time.Time{}
	for {
		err := filelock.Wait(ctx, f)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if ctx.Err() != nil || !errors.Is(err, filelock.ErrLocked) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), context.Cause(ctx), f.Close())
		}
		if time.Since(said) >= progressEvery {
			said = time.Now()
			fmt.Fprintf(w, "kafka: another process installs Kafka, waiting (%s)\n",
				time.Since(start).Round(time.Second))
		}
	}
}

// fill creates the files; the last one marks the directory as complete.
func (i installation) fill(ctx context.Context, w io.Writer) error {
	if err := os.RemoveAll(i.dir); err != nil { // Left by an interrupted run.
		return err
	}
	if err := os.MkdirAll(i.path("jars"), 0o755); err != nil {
		return err
	}
	for name, text := range map[string][]byte{"pom.xml": pom(), "log4j2.properties": logging} {
		if err := os.WriteFile(i.path(name), text, 0o644); err != nil {
			return err
		}
	}
	// -q prints only errors. The repository is that of Maven's own configuration.
	err := i.run(ctx, w, "mvn", "-q", "-B", "-f", i.path("pom.xml"), copyDependencies,
		"-DincludeScope=runtime", "-DoutputDirectory="+i.path("jars"))
	if err != nil {
		return err
	}
	jars, err := filepath.Glob(i.path("jars/*.jar"))
	if err != nil {
		return err
	}
	if len(jars) == 0 {
		return errors.New("mvn copied no jar")
	}
	slices.Sort(jars) // The archive of classes is valid for one order only.
	classpath := "-cp " + strconv.Quote(strings.Join(jars, string(os.PathListSeparator))) + "\n"
	if err := os.WriteFile(i.path("classpath"), []byte(classpath), 0o644); err != nil {
		return err
	}
	if !hasZooKeeper() {
		if err := i.format(ctx, w); err != nil {
			return err
		}
	}
	if err := i.archive(ctx); err != nil {
		return err
	}
	return os.WriteFile(i.path("installed"), nil, 0o644)
}

// format keeps the files that Kafka's own tool writes into a new data directory, which takes a JVM
// a second: the features that a new cluster begins with. The files that differ between nodes are
// written by node.format.
func (i installation) format(ctx context.Context, w io.Writer) error {
	data, config := i.path("format"), i.path("format.properties")
	defer func() { _ = os.RemoveAll(data) }()
	text := properties(map[string]string{
		"process.roles": "broker,controller", "node.id": "1", "controller.quorum.voters": "1@127.0.0.1:1",
		"listeners": "CONTROLLER://127.0.0.1:1,CLIENT://127.0.0.1:2", "controller.listener.names": "CONTROLLER",
		"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,CLIENT:PLAINTEXT",
		"inter.broker.listener.name":     "CLIENT",
		"log.dirs":                       data,
	})
	if err := os.WriteFile(config, text, 0o644); err != nil {
		return err
	}
	argv := append(i.java(i.dir), "kafka.tools.StorageTool", "format", "--cluster-id", clusterID, "--config", config)
	if err := i.run(ctx, w, argv...); err != nil {
		return err
	}
	return os.Rename(filepath.Join(data, checkpoint()), i.path(bootstrap))
}

// archive runs a node once and leaves an archive of the loaded classes.
func (i installation) archive(ctx context.Context) error {
	dir := i.path("archive")
	defer func() { _ = os.RemoveAll(dir) }()
	c, err := start(ctx, i, Options{Dir: dir, flags: []string{"-XX:ArchiveClassesAtExit=" + i.path(classes)}})
	if err != nil {
		return err
	}
	defer c.Stop()
	c.Node(0).Stop()
	if _, err := os.Stat(i.path(classes)); err != nil {
		// The archive only saves time: a JVM without archives runs the broker all the same.
		if !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// run reports that it is still running after a second, and then every 15 seconds.
func (i installation) run(ctx context.Context, w io.Writer, argv ...string) error {
	log := i.path(filepath.Base(argv[0]) + ".log")
	// Otherwise Maven's JVM leaves hsperfdata_<user> in /tmp.
	env := []string{"MAVEN_OPTS=" + os.Getenv("MAVEN_OPTS") + " -XX:-UsePerfData"}
	child, err := process.Start(process.Spec{
		Name: argv[0],
		Argv: argv,
		Env:  env,
		Log:  log,
	})
	if err != nil {
		return err
	}
	begin, next := time.Now(), time.NewTimer(time.Second)
	defer next.Stop()
	for {
		select {
		case <-child.Done():
			return child.Stop(time.Second) // The result.
		case <-ctx.Done():
			child.Kill()
			return fmt.Errorf("%s: %w", argv[0], context.Cause(ctx))
		case <-next.C:
			next.Reset(progressEvery)
			fmt.Fprintf(w, "kafka: installing, once: %s (%s)\n", argv[0], time.Since(begin).Round(time.Second))
		}
	}
}

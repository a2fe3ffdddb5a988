package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// credentialsError is about a file of credentials. It does not say what is in it.
type credentialsError struct {
	key  string // where the configuration describes the bus; "": it does not
	name string // of the key of the file
	file string
	err  error
}

func (e *credentialsError) Error() string {
	if e.key == "" {
		return e.file + ": " + e.err.Error()
	}
	return e.key + ".auth." + e.name + " " + e.file + ": " + e.err.Error()
}

func (e *credentialsError) Unwrap() error { return e.err }

// file is the key and the name of the file with the secret; both empty: there is none.
func (a *Auth) file() (key, name string) {
	switch {
	case a.CredsFile != "":
		return "credsFile", a.CredsFile
	case a.PasswordFile != "":
		return "passwordFile", a.PasswordFile
	case a.TokenFile != "":
		return "tokenFile", a.TokenFile
	case a.NKeySeedFile != "":
		return "nkeySeedFile", a.NKeySeedFile
	}
	return "", ""
}

// valid checks what can be said without the files.
func (a *Auth) valid() error {
	kinds := 0
	for _, set := range []bool{a.CredsFile != "", a.User != "" || a.PasswordFile != "", a.TokenFile != "", a.NKeySeedFile != ""} {
		if set {
			kinds++
		}
	}
	switch {
	case kinds > 1:
		return errors.New("auth: more than one kind of credentials: leave one of credsFile, user with passwordFile, tokenFile and nkeySeedFile")
	case (a.User == "") != (a.PasswordFile == ""):
		return errors.New("auth: user and passwordFile go together: set both")
	}
	return nil
}

// advice is what to do where the server refuses the credentials.
func (a *Auth) advice(key string) string {
	name, file := a.file()
	if file == "" {
		return fmt.Sprintf("the server wants credentials, or others than those in %s.url: set %s.auth", key, key)
	}
	who := ""
	if a.User != "" {
		who = " for user " + a.User
	}
	return fmt.Sprintf("the server refuses the credentials%s in %s (%s.auth.%s): put the right ones there, they are read again at each attempt", who, file, key, name)
}

// read reads the file with the secret, and checks that there is one in it. nkey is the user's public key where the secret
// is the seed of one.
func (a *Auth) read(key string) (secret, nkey string, err error) {
	name, file := a.file()
	if file == "" {
		return "", "", nil
	}
	wrong := func(err error) (string, string, error) {
		return "", "", &credentialsError{key: key, name: name, file: file, err: err}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		pathErr := new(os.PathError)
		if errors.As(err, &pathErr) {
			err = pathErr.Err // the file is named
		}
		return wrong(fmt.Errorf("cannot be read: %w", err))
	}
	secret = strings.TrimRight(string(b), "\r\n")
	var o nats.Options
	switch {
	case secret == "":
		return wrong(errors.New("is empty"))
	case a.CredsFile != "":
		_ = nats.UserCredentialBytes(b)(&o)
		jwt, err := o.UserJWT()
		if err == nil && strings.Count(jwt, ".") == 2 {
			_, err = o.SignatureCB(nil)
		} else {
			err = errors.New("no JWT")
		}
		if err != nil {
			return wrong(errors.New("holds no user's JWT and seed, as 'nsc generate creds' writes them"))
		}
	case a.NKeySeedFile != "":
		option, err := nats.NkeyOptionFromSeed(file)
		if err != nil {
			return wrong(errors.New("holds no seed of a user, which begins with SU"))
		}
		_ = option(&o)
		nkey = o.Nkey
	}
	return secret, nkey, nil
}

// changed reports whether the file holds the seed of another user than the one with that public key.
func (a *Auth) changed(nkey *string) bool {
	if a.NKeySeedFile == "" || nkey == nil {
		return false
	}
	_, now, err := a.read("")
	return err == nil && now != *nkey
}

// ConnectOptions are options of nats.go for a connection of one's own: credentials and certificates, read again at each
// connect, to the servers of urls. key is where the configuration describes the bus, "" where none does. inbox is as
// Config.InboxPrefix. An error names the key and the file that cannot be used.
func ConnectOptions(key, urls, inbox string, auth Auth, t *publish.TLS) ([]nats.Option, error) {
	if err := auth.valid(); err != nil {
		return nil, fmt.Errorf("%s.%w", key, err)
	}
	credentials, _, err := auth.option(key, func(error) {}) // the server refuses what cannot be read
	if err != nil {
		return nil, err
	}
	secure, err := tlsOption(t, key)
	if err != nil {
		return nil, err
	}
	options := []nats.Option{credentials, secure, nats.CustomInboxPrefix(cmp.Or(inbox, defaultInbox))}
	if auth.inPlaintext(urls, t) {
		options = append(options, plainOption())
	}
	return options, nil
}

// option is that of TLS. The files are read again in each handshake.
func tlsOption(t *publish.TLS, key string) (nats.Option, error) {
	config, err := t.Config()
	switch {
	case err != nil && key == "":
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%s.%w", key, err)
	}
	return func(o *nats.Options) error {
		if config == nil {
			return nil // the URL or the server may ask for it all the same
		}
		o.Secure, o.TLSConfig, o.RootCAsCB = true, config, t.Roots
		return nil
	}, nil
}

// option makes nats.go use the credentials; nkey is the public key that goes with them, if they are a seed. A file that
// cannot be used later, when it is read again, is told to unusable, or is an error of connecting.
func (a *Auth) option(key string, unusable func(error)) (o nats.Option, nkey string, err error) {
	if _, nkey, err = a.read(key); err != nil {
		return nil, "", err
	}
	again := func() string {
		secret, _, err := a.read(key)
		if err != nil {
			unusable(err)
		}
		return secret
	}
	switch {
	case a.CredsFile != "":
		creds := func() (*nats.Options, error) {
			secret, _, err := a.read(key)
			o := new(nats.Options)
			_ = nats.UserCredentialBytes([]byte(secret))(o)
			return o, err
		}
		return nats.UserJWT(
			func() (string, error) {
				o, err := creds()
				if err != nil {
					return "", err
				}
				return o.UserJWT()
			},
			func(nonce []byte) ([]byte, error) {
				o, err := creds()
				if err != nil {
					return nil, err
				}
				return o.SignatureCB(nonce)
			}), "", nil
	case a.User != "":
		return nats.UserInfoHandler(func() (string, string) { return a.User, again() }), "", nil
	case a.TokenFile != "":
		return nats.TokenHandler(again), "", nil
	case a.NKeySeedFile != "":
		o, err = nats.NkeyOptionFromSeed(a.NKeySeedFile)
		return o, nkey, err
	}
	return func(*nats.Options) error { return nil }, "", nil
}

// inPlaintext reports whether a secret may go to the servers without TLS, and nothing permits that. With one tls:// or wss:// among
// the URLs, nats.go insists on TLS with all of them.
func (a *Auth) inPlaintext(urls string, t *publish.TLS) bool {
	secret := a.PasswordFile != "" || a.TokenFile != ""
	for s := range strings.SplitSeq(urls, ",") {
		u, err := url.Parse(strings.TrimSpace(s))
		if err != nil {
			continue // nats.go refuses it
		}
		if u.Scheme == "tls" || u.Scheme == "wss" {
			return false
		}
		secret = secret || u.User != nil
	}
	return secret && t == nil && !a.Insecure
}

// plainDialer is a nats.CustomDialer for loopbackOnly.
type plainDialer struct{ net.Dialer }

func (d *plainDialer) Dial(network, addr string) (net.Conn, error) {
	return publish.LoopbackOnly(d.DialContext)(context.Background(), network, addr)
}

// plainOption is the option of nats.go for it; its timeout is the one that nats.go has by default.
func plainOption() nats.Option {
	return nats.SetCustomDialer(&plainDialer{net.Dialer{Timeout: nats.DefaultTimeout}})
}

// Package ptytest opens pseudo terminals for tests.
package ptytest

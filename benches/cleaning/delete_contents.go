// Deletes what is in a filesystem as the Go provisioner does: each entry of its root by os.RemoveAll.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

func deleteContents(root string) error {
	dir, err := os.Open(root)
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	var problems []error
	for _, name := range names {
		problems = append(problems, os.RemoveAll(filepath.Join(root, name)))
	}
	return errors.Join(problems...)
}

func main() {
	if err := deleteContents(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

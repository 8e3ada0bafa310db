// Pause holds the namespaces of a pod: it waits to be told to end, and buries orphans meanwhile.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	orphans := make(chan os.Signal, 16)
	signal.Notify(orphans, syscall.SIGCHLD)
	for {
		select {
		case <-ended:
			return
		case <-orphans:
			for {
				pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
				if err != nil || pid <= 0 {
					break
				}
			}
		}
	}
}

// promcheck reads a file of rules, then one expression a line, from standard input, separated by a
// line `---`, and prints what Prometheus finds wrong with them; its exit code is 1 then.
package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

func main() {
	given, err := io.ReadAll(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	rules, expressions, _ := bytes.Cut(given, []byte("\n---\n"))
	found := problems(rules, bytes.Split(expressions, []byte("\n")))
	for _, each := range found {
		fmt.Println(each)
	}
	if len(found) > 0 {
		os.Exit(1)
	}
}

func problems(rules []byte, expressions [][]byte) []error {
	reader, logger := parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler)
	groups, found := rulefmt.Parse(rules, false, model.UTF8Validation, reader, logger)
	if groups != nil && len(groups.Groups) == 0 {
		found = append(found, fmt.Errorf("there are no rules"))
	}
	for _, each := range expressions {
		if len(each) == 0 {
			continue
		}
		if _, err := reader.ParseExpr(string(each)); err != nil {
			found = append(found, fmt.Errorf("%s: %w", each, err))
		}
	}
	return found
}

// Package v1 has the name that `typeOf` prints.
package v1

import (
	"encoding/json"
	"fmt"
	"time"
)

// Duration is a duration as Kubernetes' API types have it.
type Duration struct {
	time.Duration
}

// String is what a generated String method of a Kubernetes type prints.
func (d *Duration) String() string {
	if d == nil {
		return "nil"
	}
	return fmt.Sprintf("&Duration{Duration:%v,}", d.Duration)
}

// MarshalJSON writes Go's notation.
func (d Duration) MarshalJSON() ([]byte, error) {
	return json.Marshal(d.Duration.String())
}

package process

// Memory of a process, in bytes.
type Memory struct {
	RSS  int64 `json:"rss"`
	Peak int64 `json:"peak"` // highest RSS since its start or the last ResetPeak
}

package kafkaid

// Parse reads an answer.
func Parse(body []byte) (cluster string, topics map[string]string, err error) {
	r, err := parse(body)
	if err != nil {
		return "", nil, err
	}
	return r.ids.Cluster, r.ids.Topics, nil
}

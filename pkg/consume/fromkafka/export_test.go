package fromkafka

// These are the functions of the package.
var (
	FromKafka = fromKafka
	AboutKey  = aboutKey
)

package object

import "time"

// unixTime returns an RFC 3339 time in seconds since 1970, 0 if text is not such a time.
func unixTime(text []byte) int64 {
	// The only form that the API server writes for metav1.Time: 2026-11-20T15:00:00Z
	//                                                           0123456789012345678 9
	const form = "0000-00-00T00:00:00Z"
	if len(text) == len(form) {
		usual := true
		for i, c := range text {
			if d := c - '0'; form[i] == '0' && d > 9 || form[i] != '0' && c != form[i] {
				usual = false
				break
			}
		}
		if usual {
			two := func(i int) int { return int(text[i]-'0')*10 + int(text[i+1]-'0') }
			year := two(0)*100 + two(2)
			month := two(5)
			day := two(8)
			hour := two(11)
			minute := two(14)
			second := two(17)
			if month >= 1 && month <= 12 && day >= 1 && day <= 28 && hour < 24 && minute < 60 && second < 60 {
				return time.Date(year, time.Month(month), day, hour, minute, second, 0, time.UTC).Unix()
			}
		}
	}
	if len(text) == 0 {
		return 0
	}
	var t time.Time
	if t.UnmarshalText(text) != nil {
		return 0
	}
	return t.Unix()
}

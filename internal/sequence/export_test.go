package sequence

const MaxEdits = maxEdits

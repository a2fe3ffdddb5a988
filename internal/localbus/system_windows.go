package localbus

import "golang.org/x/sys/windows"

// available is how many bytes dir's file system has for us.
func available(dir string) (uint64, error) {
	path, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, err
	}
	var room uint64
	err = windows.GetDiskFreeSpaceEx(path, &room, nil, nil)
	return room, err
}

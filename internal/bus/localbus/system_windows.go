package localbus

import "golang.org/x/sys/windows"

// available returns the bytes that this process may use on dir's file system.
func available(dir string) (uint64, error) {
	path, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, err
	}
	var room uint64
	err = windows.GetDiskFreeSpaceEx(path, &room, nil, nil)
	return room, err
}

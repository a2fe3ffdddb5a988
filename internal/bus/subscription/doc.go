// Package subscription has what the subscriptions of relays to all buses share. It makes records,
// with their positions, of the events that a reader returns.
package subscription

// The exchange time where several members share a network card, as the paper's 40 processes of a node do: a simulation,
// message by message, in which each card sends one message at a time and receives one at a time.
//
//   sender's processor: o -> its card: G a byte -> L -> the other card: G a byte -> receiver's processor: o
//
// Between members of one card a message passes memory: no card takes part, and the receiver's processor copies it.
#pragma once

#include <cstdint>

#include "exchange/loggp.h"
#include "exchange/topology.h"

namespace offpath::bench {

struct CardConstants {
  LogGP network;               // `gap` is of a processor, not of a card, and is not used
  double card_gap = 5;         // ns between messages of one card: 200 million a second
  double near_latency = 100;   // ns between members of one card
  double near_byte_gap = 0.1;  // ns of each byte: a copy by one core
};

// From the members' posting until all top leaders have everything. Members are on cards in the topology's order,
// `members_of_card` on each.
[[nodiscard]] double exchange_ns(const exchange::Topology& topology, const CardConstants& constants,
                                 std::uint64_t record_bytes, std::size_t members_of_card);

// Of the largest parcel that a node's leader sends, without what only grants need.
[[nodiscard]] double parcel_bytes(const exchange::Node& node, std::uint64_t record_bytes);

}  // namespace offpath::bench

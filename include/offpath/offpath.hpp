// Offpath for C++: offpath.h with owners and exceptions. Header only; link with liboffpath.
//
//     offpath::Channel channel("unix:/run/offpath/agent.sock");
//     offpath::Stream particles(channel, "particles", {{"id", "i"}, {"x", "+w:3g"}}, {.rows_max = n});
//     const auto ticket = particles.send({id.data(), x.data()}, n, {"step0", "rank0"});
//     ... compute on something else ...
//     particles.wait_pulled(ticket);                         // id and x are mine again
//     offpath::Frame frame = channel.get("local:/particles", {"step0", "rank0"}, std::chrono::seconds(1));
//
// Every type is move-only and owns one handle; what was made from a channel keeps it alive. Errors are thrown as
// offpath::Error. Times are durations; offpath::forever waits without end.
//
// Each part may be included alone.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef OFFPATH_OFFPATH_HPP
#define OFFPATH_OFFPATH_HPP

#include <offpath/channel.hpp>
#include <offpath/exchange.hpp>
#include <offpath/gauges.hpp>
#include <offpath/memory.hpp>
#include <offpath/objects.hpp>
#include <offpath/stream.hpp>
#include <offpath/tasks.hpp>

#endif  // OFFPATH_OFFPATH_HPP

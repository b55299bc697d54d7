// Two stacks over a bad network, in virtual time, with owners that keep payload in rings as programs will. For tests.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "tcp/congestion/congestion.h"
#include "tcp/stack/station.h"
#include "testing/tcp/family.h"
#include "testing/tcp/impaired_port.h"
#include "testing/tcp/memory_port.h"

namespace offpath::tcp {

// One end's data of a stream: bytes derived from their position, so that any lost, doubled or misplaced byte is
// detected.
[[nodiscard]] inline std::byte stream_byte(std::uint64_t stream, std::uint64_t position) noexcept {
  std::uint64_t x = (position >> 3) * 0x9e3779b97f4a7c15 + stream * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 29)) * 0x94d049bb133111eb;
  return static_cast<std::byte>(x >> (8 * (position & 7)));
}

struct TestFlow {
  FlowId id;
  std::uint64_t tag = 0;
  std::uint64_t sends = 0;  // the stream it sends has so many bytes
  std::uint64_t send_stream = 0, receive_stream = 0;
  std::vector<std::byte> out, in;  // rings
  std::uint64_t offered = 0, acknowledged = 0, received = 0, read = 0, allowed = 0;
  bool connected = false, finished = false, closed = false, gone = false, finish_wanted = true, reads = true;
  bool release_when_done = true, fin_given = false, release_given = false;
  FlowError error = FlowError::none;
  std::size_t wrong = 0;  // bytes that differ from those sent
};

struct TestFlowPlan {
  std::uint64_t sends = 0, buffer_bytes = 65'536;
  bool reads = true;
};

class MemoryOwner final : public Owner {
 public:
  std::optional<std::uint64_t> accept(std::uint64_t listener_tag, FlowId flow, const FlowKey& key) override {
    if (flows.size() >= flows_max) return std::nullopt;
    // A listener's streams are named for the peer's port: both ends know that.
    TestFlow& added = add(plan, key.remote.port, listener_tag);
    added.id = flow;
    return added.tag;
  }
  FlowShare share(std::uint64_t tag) const override { return share_of ? share_of(tag) : FlowShare{}; }
  Payload payload(FlowId, std::uint64_t tag, std::uint64_t position, std::uint32_t bytes) override {
    TestFlow& flow = flows.at(tag);
    OFP_ASSERT(position >= flow.acknowledged && position + bytes <= flow.offered);
    const std::size_t at = position % flow.out.size(), first = std::min<std::size_t>(bytes, flow.out.size() - at);
    return {Bytes(flow.out).subspan(at, first), Bytes(flow.out).first(bytes - first)};
  }
  void store(FlowId, std::uint64_t tag, std::uint64_t position, Bytes bytes) override {
    TestFlow& flow = flows.at(tag);
    OFP_ASSERT(position >= flow.received && position + bytes.size() <= flow.allowed);
    for (std::size_t i = 0; i < bytes.size(); ++i) flow.in[(position + i) % flow.in.size()] = bytes[i];
  }

  TestFlow& add(const TestFlowPlan& what, std::uint64_t name, std::uint64_t side) {
    const std::uint64_t tag = ++last_tag_;
    TestFlow& flow = flows[tag];
    flow.tag = tag;
    flow.sends = what.sends;
    flow.send_stream = 2 * name + side;
    flow.receive_stream = 2 * name + 1 - side;
    flow.out.resize(what.buffer_bytes);
    flow.in.resize(what.buffer_bytes);
    flow.allowed = what.buffer_bytes;
    flow.reads = what.reads;
    return flow;
  }

  // Reads arrived data, writes as far as there is room, and closes finished connections.
  void act(Stack& stack, TimeNs now) {
    while (const auto what = stack.next_change()) take(*what);
    for (auto& [tag, flow] : flows) act(stack, flow, now);
  }

  std::map<std::uint64_t, TestFlow> flows;  // by tag
  std::function<FlowShare(std::uint64_t tag)> share_of;
  std::size_t flows_max = 1 << 20;
  TestFlowPlan plan;  // of accepted flows

 private:
  void take(const FlowChange& what) {
    TestFlow& flow = flows.at(what.tag);
    OFP_ASSERT(!flow.gone && what.flow == flow.id);
    OFP_ASSERT(what.received >= flow.received && what.acknowledged >= flow.acknowledged &&
               what.acknowledged <= flow.offered);
    flow.connected |= (what.what & change::connected) != 0;
    flow.finished |= (what.what & change::finished) != 0;
    flow.closed |= (what.what & change::closed) != 0;
    flow.gone |= (what.what & change::gone) != 0;
    flow.received = what.received;
    flow.acknowledged = what.acknowledged;
    if (what.error != FlowError::none) flow.error = what.error;
  }
  void act(Stack& stack, TestFlow& flow, TimeNs now) {
    if (flow.gone) return;
    while (flow.reads && flow.read < flow.received) {
      flow.wrong += flow.in[flow.read % flow.in.size()] != stream_byte(flow.receive_stream, flow.read);
      ++flow.read;
    }
    if (const std::uint64_t allowed = flow.read + flow.in.size(); allowed != flow.allowed) {
      flow.allowed = allowed;
      stack.allow(flow.id, allowed, now);
    }
    const std::uint64_t until = std::min(flow.sends, flow.acknowledged + flow.out.size());
    if (flow.offered < until) {
      for (; flow.offered < until; ++flow.offered)
        flow.out[flow.offered % flow.out.size()] = stream_byte(flow.send_stream, flow.offered);
      stack.offer(flow.id, flow.offered, now);
    }
    if (!flow.fin_given && flow.finish_wanted && flow.offered == flow.sends) {
      flow.fin_given = true;
      stack.finish(flow.id);
    }
    if (!flow.release_given && flow.release_when_done &&
        (flow.closed || (flow.finished && flow.read == flow.received && flow.fin_given))) {
      flow.release_given = true;
      stack.release(flow.id, now);
    }
  }

  std::uint64_t last_tag_ = 0;
};

struct TestNetworkOptions {
  Impairments there{}, back{};
  MemoryPortOptions ports{};
  StackOptions stack{};
  std::string_view congestion = "cubic";
  std::uint64_t seed = 1;
};

// Addresses are 10.0.0.1 and 10.0.0.2, or of IPv6 (family.h).
class TestNetwork {
 public:
  struct End {
    MemoryOwner owner;
    std::unique_ptr<ImpairedPort> port;
    std::unique_ptr<Stack> stack;
    std::unique_ptr<Station> station;
  };

  explicit TestNetwork(const TestNetworkOptions& options)
      : congestion_(congestion_control(options.congestion).value()) {
    std::tie(one_, two_) = MemoryPort::pair(options.ports);
    const Impairments none{};
    ends[0].port = std::make_unique<ImpairedPort>(*one_, options.there, none, 2 * options.seed);
    ends[1].port = std::make_unique<ImpairedPort>(*two_, options.back, none, 2 * options.seed + 1'000'003);
    for (std::uint32_t i = 0; i < 2; ++i) {
      StackOptions stack = options.stack;
      set_test_address(stack, 0x0a000001 + i);
      stack.secret = {options.seed, i + 1};
      End& end = ends[i];
      end.stack = std::make_unique<Stack>(stack, end.port->capabilities(), *congestion_, end.owner, now);
      end.station =
          std::make_unique<Station>(*end.port, *end.stack, [&end](TimeNs at) { end.owner.act(*end.stack, at); });
    }
  }

  [[nodiscard]] static IpAddress address(std::uint32_t end) { return test_address(0x0a000001 + end); }

  TestFlow& connect(std::uint32_t from, std::uint16_t port, const TestFlowPlan& plan, std::uint16_t local_port = 0,
                    const FlowOptions& options = {}) {
    End& end = ends[from];
    TestFlow& flow = end.owner.add(plan, 0, 0);
    flow.id =
        end.stack->connect(local_port, {address(1 - from), port}, flow.tag, plan.buffer_bytes, now, options).value();
    const std::uint64_t name = end.stack->flow(flow.id)->key.local.port;
    flow.send_stream = 2 * name;
    flow.receive_stream = 2 * name + 1;
    return flow;
  }

  // To a node that may be absent.
  TestFlow& connect_to(std::uint32_t from, Endpoint remote) {
    TestFlow& flow = ends[from].owner.add({}, 0, 0);
    flow.id = ends[from].stack->connect(0, remote, flow.tag, 1000, now).value();
    return flow;
  }
  // `seen` is called for each frame that this end sends.
  void watch(std::uint32_t end, std::function<void(Bytes)> seen) { (end == 0 ? *one_ : *two_).watch(std::move(seen)); }
  // Nothing comes to it or from it any more; or everything does, without delay.
  void cut_off(std::uint32_t end, bool off = true) {
    Impairments dead;
    dead.loss = off ? 1 : 0;
    ends[end].port->set(dead, dead);
  }

  // Polls both ends until nothing happens at this time, then goes on to when something does, up to `until`. False:
  // nothing ever does.
  bool step(TimeNs until) {
    for (int i = 0; i < 100'000; ++i) {
      bool worked = ends[0].station->poll(now);
      worked |= ends[1].station->poll(now);
      if (poll_others) worked |= poll_others(now);
      if (!worked && !one_->has_frames() && !two_->has_frames()) break;
    }
    TimeNs next = never;
    for (const End& end : ends) next = std::min(next, end.station->next_deadline());
    if (others_due) next = std::min(next, others_due());
    if (next > until) {
      now = std::max(now, until);
      return next != never;
    }
    now = std::max(now + 1, next);
    return true;
  }
  void run(TimeNs duration) {
    const TimeNs until = now + duration;
    while (now < until && step(until)) {
    }
    now = until;
  }
  // Until `done`, or `limit` has passed: false.
  template <class Done>
  bool run_until(Done done, TimeNs limit) {
    const TimeNs until = now + limit;
    while (!done()) {
      if (now >= until) return false;
      if (!step(until)) return done();
    }
    return true;
  }
  [[nodiscard]] bool all_gone() const {
    for (const End& end : ends)
      for (const auto& [tag, flow] : end.owner.flows)
        if (!flow.gone) return false;
    return true;
  }

  // Further parts to poll, such as a slow path, and the time of their next poll.
  std::function<bool(TimeNs)> poll_others;
  std::function<TimeNs()> others_due;

  TimeNs now = second_ns;
  End ends[2];

 private:
  std::unique_ptr<const CongestionControl> congestion_;
  std::unique_ptr<MemoryPort> one_, two_;
};

}  // namespace offpath::tcp

#include "link/shaped_link.h"

#include <algorithm>
#include <array>
#include <utility>

namespace offpath::link {

namespace {

std::array<Profile, 2> profiles() {
  return {{
      {.name = "none"},
      // BlueField-2, as in the SDMS paper's test bed: 100 Gb/s InfiniBand, which RDMA reads of 8 KiB and more reach
      // with many outstanding (section III and figure 3). Its cores take 4.8 times as long as the host's to build Arrow
      // in C++ (section V-E, median over one column), and it has eight. The latency is an assumption, since the paper
      // gives no number: an RDMA read of a few bytes across one switchless hop takes about 2 us.
      {.name = "bluefield2",
       .bandwidth_bytes_per_s = 100'000'000'000 / 8,
       .latency_ns = 2 * microsecond_ns,
       .cores = 8,
       .core_speed = 1 / 4.8,
       .maps_segments = false},
  }};
}

}  // namespace

double Profile::cpu_quota(unsigned threads) const noexcept {
  return (cores == 0 ? threads : std::min(threads, cores)) * core_speed;
}

Result<Profile> find_profile(std::string_view name) {
  std::string names;
  for (const Profile& profile : profiles()) {
    if (profile.name == name) return profile;
    names += names.empty() ? profile.name : ", " + profile.name;
  }
  return fail(Error::not_found, "there is no link profile \"{}\"; there are: {}", name, names);
}

ShapedAgentLink::ShapedAgentLink(std::unique_ptr<AgentLink> inner, const Profile& profile)
    : inner_(std::move(inner)), profile_(profile), traits_(inner_->traits()), due_fd_(inner_->event_fd()) {
  traits_.reason += fmt::format("; slowed down to profile {}: {} bytes/s, {} ns for each operation", profile_.name,
                                profile_.bandwidth_bytes_per_s, profile_.latency_ns);
}

MutableBytes ShapedAgentLink::mapped(RegionId segment) {
  return profile_.maps_segments ? inner_->mapped(segment) : MutableBytes{};
}

TimeNs ShapedAgentLink::due_after(Pipe& pipe, std::uint64_t bytes) noexcept {
  if (pipe.free_at <= now_) pipe = {now_, pipe.free_at == now_ ? pipe.carry : 0};
  if (profile_.bandwidth_bytes_per_s > 0) {
    const auto work = static_cast<unsigned __int128>(bytes) * second_ns + pipe.carry;
    pipe.free_at += static_cast<TimeNs>(work / profile_.bandwidth_bytes_per_s);
    pipe.carry = static_cast<std::uint64_t>(work % profile_.bandwidth_bytes_per_s);
  }
  return pipe.free_at + profile_.latency_ns;
}

void ShapedAgentLink::read(std::uint64_t token, std::span<const ReadPiece> pieces) {
  std::uint64_t bytes = 0;
  for (const ReadPiece& piece : pieces) bytes += piece.length;
  if (ended_) return complete_after_end(LinkEvent::Kind::read_done, token);
  const TimeNs due = read_due_[token] = due_after(reads_, bytes);
  inner_->read(token, pieces);
  due_fd_.arm(std::min(next_event(), due));  // it may be due already, and no poll may follow until then
}

void ShapedAgentLink::write(std::uint64_t token, std::span<const WritePiece> pieces) {
  std::uint64_t bytes = 0;
  for (const WritePiece& piece : pieces) bytes += piece.length;
  if (ended_) return complete_after_end(LinkEvent::Kind::write_done, token);
  const TimeNs due = write_due_[token] = due_after(writes_, bytes);
  inner_->write(token, pieces);
  due_fd_.arm(std::min(next_event(), due));
}

// The inner link has ended but its owner does not know it yet: the operation completes before `closed`.
void ShapedAgentLink::complete_after_end(LinkEvent::Kind kind, std::uint64_t token) {
  if (!done_) held_.hold({kind, token, fail(Error::peer_lost, "the link has ended"), {}}, 0);
}

void ShapedAgentLink::wake() {
  if (profile_.latency_ns == 0) return inner_->wake();
  wake_due_ = std::min(wake_due_, now_ + profile_.latency_ns);
  due_fd_.arm(next_event());
}

TimeNs ShapedAgentLink::next_event() const noexcept { return std::min(held_.next_due(), wake_due_); }

void ShapedAgentLink::take(LinkEvent event) {
  TimeNs due = now_;
  switch (event.kind) {
    case LinkEvent::Kind::read_done:
    case LinkEvent::Kind::write_done: {
      auto& dues = event.kind == LinkEvent::Kind::read_done ? read_due_ : write_due_;
      if (const auto node = dues.extract(event.token)) due = std::max(now_, node.mapped());
      break;
    }
    case LinkEvent::Kind::woken:
    case LinkEvent::Kind::offered:
      due = now_ + profile_.latency_ns;
      break;
    case LinkEvent::Kind::closed:
      ended_ = true;
      due = std::max(now_, last_due_);  // after everything else
      break;
  }
  last_due_ = std::max(last_due_, due);
  held_.hold(std::move(event), due);
}

std::size_t ShapedAgentLink::poll(TimeNs now, std::span<LinkEvent> events) {
  now_ = std::max(now_, now);
  if (done_) return 0;
  if (wake_due_ <= now_) {
    wake_due_ = never;
    inner_->wake();
  }
  std::array<LinkEvent, 64> arrived;
  for (std::size_t count = arrived.size(); count == arrived.size();) {
    count = inner_->poll(now_, arrived);
    for (std::size_t i = 0; i < count; ++i) take(std::move(arrived[i]));
  }
  const std::size_t count = held_.release(now_, events);
  done_ = count > 0 && events[count - 1].kind == LinkEvent::Kind::closed;
  due_fd_.arm(next_event());
  return count;
}

void ShapedAgentLink::close() {
  ended_ = done_ = true;
  wake_due_ = never;
  inner_->close();
}

}  // namespace offpath::link

#include "sift/flushes.h"

#include <algorithm>

namespace offpath::sift {

Flushes::Flushes(const SiftOptions& options, const Geometry& geometry, std::uint32_t self, Publications& publications)
    : options_(options), geometry_(geometry), self_(self), publications_(publications) {
  if (const auto held = geometry_.elements_of(self_, options_.settings.track_stage()); !held.empty())
    passed_[0] = held.size();
}

bool Flushes::begin(std::uint64_t token, std::uint64_t flush, TimeNs deadline) {
  waiting_.push_back({token, flush, deadline});
  if (flush <= newest_) return false;
  newest_ = flush;
  return true;
}

const std::vector<std::string>& Flushes::expected_sources(Element& element) const {
  if (!element.expected) {
    element.expected.emplace();
    for (const std::uint32_t source : geometry_.sources(element.id, self_))
      element.expected->push_back(geometry_.members()[source]);
  }
  return *element.expected;
}

void Flushes::take_mark(Element& to, const PieceHeader& mark) {
  std::uint64_t& flushed = to.sources[mark.source.member].flushed;
  flushed = std::max(flushed, mark.flush);
  std::uint64_t flush = UINT64_MAX;
  for (const std::string& source : expected_sources(to)) {
    const auto found = to.sources.find(source);
    flush = std::min(flush, found == to.sources.end() ? 0 : found->second.flushed);
    if (flush <= to.newest_flush) return;
  }
  if (flush == UINT64_MAX) return;  // no member publishes to it here
  to.newest_flush = flush;
  to.flushes.push_back({flush, to.taken});
}

void Flushes::pass(Element& element, std::uint32_t overhead_bytes) {
  while (!element.flushes.empty() && element.gone.all_up_to() >= element.flushes.front().pieces) {
    const std::uint64_t flush = element.flushes.front().flush;
    element.flushes.pop_front();
    if (element.id.stage == options_.settings.track_stage()) {
      if (--passed_.at(element.passed) == 0) passed_.erase(element.passed);
      ++passed_[flush];
      element.passed = flush;
      continue;
    }
    for (std::uint32_t part = 0; part < options_.settings.fanout; ++part)
      publications_.publish_mark(element.id, geometry_.next(element.id, part), flush, overhead_bytes);
  }
}

void Flushes::end(Elements& elements, TimeNs now, Effects& effects) {
  const std::uint64_t everywhere = passed_.empty() ? newest_ : passed_.begin()->first;
  std::erase_if(waiting_, [&](const Flush& flush) {
    if (flush.flush <= everywhere)
      add(effects, FlushedEffect{flush.token, {}});
    else if (flush.deadline <= now)
      add(effects, FlushedEffect{flush.token, fail(Error::timeout, "{}", describe(elements, flush.flush))});
    else
      return false;
    return true;
  });
}

void Flushes::end_all(const Status& status, Effects& effects) {
  for (const Flush& flush : waiting_) add(effects, FlushedEffect{flush.token, status});
  waiting_.clear();
}

void Flushes::drop(const Status& status, Effects& effects) {
  end_all(status, effects);
  passed_.clear();
}

TimeNs Flushes::next_deadline() const noexcept {
  TimeNs next = never;
  for (const Flush& flush : waiting_) next = std::min(next, flush.deadline);
  return next;
}

std::string Flushes::describe(Elements& elements, std::uint64_t flush) const {
  std::uint64_t waiting = 0;
  std::string example;
  const std::uint32_t track_stage = options_.settings.track_stage();
  for (const std::uint32_t index : geometry_.elements_of(self_, track_stage)) {
    Element& at = elements[{track_stage, index}];
    if (at.passed >= flush) continue;
    ++waiting;
    if (!example.empty()) continue;
    for (const std::string& source : expected_sources(at))
      if (at.sources[source].flushed < flush) example += fmt::format("{}'{}'", example.empty() ? "" : ", ", source);
    if (!example.empty()) example = fmt::format("; element {} waits for {}", index, example.substr(0, 200));
  }
  return fmt::format("flush {} of '{}': {} elements of tracks on '{}' have not received all pieces{}{}{}", flush,
                     options_.settings.pool, waiting, options_.self.member, example, held_back.empty() ? "" : "; ",
                     held_back);
}

}  // namespace offpath::sift

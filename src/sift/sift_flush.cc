// How a flush passes from stage to stage, as defined in sift.h.
#include <algorithm>

#include "sift/sift.h"

namespace offpath::sift {

void Sift::on_flush(std::uint64_t token, std::uint64_t flush, TimeNs deadline, TimeNs now, Effects& effects) {
  if (dropped_ || flush == 0) {
    effects.emplace_back(std::in_place_type<FlushedEffect>, token,
                         dropped_ ? fail(Error::not_found, "pool '{}' was dropped", options_.settings.pool)
                                  : fail(Error::invalid, "flushes count from 1"));
    return;
  }
  flushes_.push_back({token, flush, deadline});
  if (flush > newest_flush_) {
    newest_flush_ = flush;
    Element& first = element({1, 0});
    first.newest_flush = flush;
    first.flushes.push_back({flush, first.taken});  // pieces that wait to be admitted precede it too
    consider(first, now);
    pass_flushes(first);
    settle(1, now, effects);
  }
  end_flushes(now, effects);
}

void Sift::take_mark(const PieceHeader& header, TimeNs now, Effects& effects) {
  Element& to = element(header.element);
  std::uint64_t& flushed = to.sources[header.source.member].flushed;
  flushed = std::max(flushed, header.flush);
  look_for_flush(to);
  consider(to, now);
  pass_flushes(to);
  end_flushes(now, effects);
}

const std::vector<std::string>& Sift::expected_sources(Element& element) const {
  if (!element.expected) {
    element.expected.emplace();
    for (const std::uint32_t source : geometry_.sources(element.id, self_))
      element.expected->push_back(geometry_.members()[source]);
  }
  return *element.expected;
}

// Whether a flush came from all sources. Then the pieces taken so far precede it.
void Sift::look_for_flush(Element& element) {
  std::uint64_t flush = UINT64_MAX;
  for (const std::string& source : expected_sources(element)) {
    const auto found = element.sources.find(source);
    flush = std::min(flush, found == element.sources.end() ? 0 : found->second.flushed);
    if (flush <= element.newest_flush) return;
  }
  if (flush == UINT64_MAX) return;  // no member publishes to it here
  element.newest_flush = flush;
  element.flushes.push_back({flush, element.taken});
}

void Sift::pass_flushes(Element& element) {
  while (!element.flushes.empty() && element.gone.all_up_to() >= element.flushes.front().pieces) {
    const std::uint64_t flush = element.flushes.front().flush;
    element.flushes.pop_front();
    if (last(element.id)) {
      if (--passed_.at(element.passed) == 0) passed_.erase(element.passed);
      ++passed_[flush];
      element.passed = flush;
      continue;
    }
    for (std::uint32_t part = 0; part < options_.settings.fanout; ++part) {
      Outgoing mark;
      mark.header.flush = flush;
      publish(element.id, geometry_.next(element.id, part), std::move(mark), 0);
    }
  }
}

void Sift::end_flushes(TimeNs now, Effects& effects) {
  const std::uint64_t everywhere = passed_.empty() ? newest_flush_ : passed_.begin()->first;
  std::erase_if(flushes_, [&](const Flush& flush) {
    if (flush.flush <= everywhere)
      effects.emplace_back(std::in_place_type<FlushedEffect>, flush.token, Status{});
    else if (flush.deadline <= now)
      effects.emplace_back(std::in_place_type<FlushedEffect>, flush.token,
                           fail(Error::timeout, "{}", describe_flush(flush.flush)));
    else
      return false;
    return true;
  });
}

std::string Sift::describe_flush(std::uint64_t flush) {
  std::uint64_t waiting = 0;
  std::string example;
  const std::uint32_t track_stage = options_.settings.track_stage();
  for (const std::uint32_t index : geometry_.elements_of(self_, track_stage)) {
    Element& at = element({track_stage, index});
    if (at.passed >= flush) continue;
    ++waiting;
    if (!example.empty()) continue;
    for (const std::string& source : expected_sources(at))
      if (at.sources[source].flushed < flush) example += fmt::format("{}'{}'", example.empty() ? "" : ", ", source);
    if (!example.empty()) example = fmt::format("; element {} waits for {}", index, example.substr(0, 200));
  }
  return fmt::format("flush {} of '{}': {} elements of tracks on '{}' do not have everything{}", flush,
                     options_.settings.pool, waiting, options_.self.member, example);
}

}  // namespace offpath::sift

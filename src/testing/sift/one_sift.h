// One sift pool on one agent, whose effects a test carries out one by one.
//
// Read this first in src/testing/sift, then sift_parts.h (the parts of one), service_parts.h, one_sift_agent.h and
// sift_agents.h (agents with the whole service).
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sift/sift.h"
#include "sift/split/particles.h"
#include "sift/tracks/track_reader.h"
#include "testing/pool/memory_unread.h"
#include "testing/sift/taken_effects.h"

namespace offpath::sift {

class OneSift {
 public:
  explicit OneSift(std::string_view name, std::vector<std::string> members = {"a"}, std::string self = "a",
                   bool kept = false)
      : sift(Sift::make({.settings = parse_settings(name).value(), .self = {self, 1}, .memory = memory, .kept = kept},
                        members)
                 .value()) {}

  template <class Kind>
  std::vector<Kind> take() {
    return taken_effects<Kind>(effects);
  }
  void run_jobs() {
    for (std::vector<JobEffect> jobs = take<JobEffect>(); !jobs.empty(); jobs = take<JobEffect>())
      for (const JobEffect& job : jobs) sift->on_job(job.token, job.run(), now, effects);
  }
  // Publishes to itself until nothing is left to do. Without `publishes` published pieces stay in the list.
  void run(bool publishes = true) {
    constexpr std::uint64_t own = 1'000'000;
    for (bool any = true; any;) {
      run_jobs();
      any = keep();
      for (const PublishEffect& each : publishes ? take<PublishEffect>() : std::vector<PublishEffect>{}) {
        any = true;
        sift->on_offer(own + each.token, each.header, each.frame ? each.frame->bytes : 0, each.frame, now, effects);
      }
      for (const StoredEffect& answer : take<StoredEffect>()) {
        any = true;
        if (answer.token >= own) sift->on_published(answer.token - own, answer.status, now, effects);
      }
    }
  }
  // Carries out what a kept pool requests of its store.
  bool keep() {
    bool any = false;
    for (KeepEffect& each : take<KeepEffect>()) {
      any = true;
      names.push_back(each.name);
      store[each.name] = std::move(each.object);
      sift->on_kept(each.token, {}, now, effects);
    }
    for (const ForgetEffect& each : take<ForgetEffect>()) store.erase(each.name);
    for (SpillEffect& each : take<SpillEffect>()) {
      any = true;
      if (disk_failure) {
        sift->on_spilled(each.token, tl::unexpected(*disk_failure), now, effects);
        continue;
      }
      store[each.name] = each.object;
      const FramePtr object = std::move(each.object);
      sift->on_spilled(each.token,
                       pool::MemoryUnread::frame(object->bytes, object->rows, memory.cache,
                                                 [this, name = each.name]() -> Result<Bytes> {
                                                   const auto at = store.find(name);
                                                   if (at == store.end()) return fail(Error::io, "none");
                                                   return Bytes(at->second->buffer.data(), at->second->bytes);
                                                 }),
                       now, effects);
    }
    for (const ReadEffect& each : take<ReadEffect>()) {
      any = true;
      const auto at = store.find(each.name);
      if (std::optional<Failure> failure = fails_reading ? fails_reading(each.name) : std::nullopt)
        sift->on_read(each.token, tl::unexpected(*failure), now, effects);
      else if (at == store.end())
        sift->on_read(each.token, fail(Error::not_found, "none"), now, effects);
      else
        sift->on_read(each.token, at->second, now, effects);
    }
    return any;
  }
  // Starts another life with the objects of the former one.
  void restore(std::map<std::string, FramePtr> from) {
    store = std::move(from);
    std::vector<KeptItem> items;
    for (const auto& [name, object] : store) items.push_back({name, object->bytes, object->rows});
    sift->restore(1, items, now, effects);
  }
  void flush() {
    sift->on_flush(77, ++flushes, never, now, effects);
    run();
    ASSERT_EQ(take<FlushedEffect>().size(), 1u);
  }
  FramePtr frame(std::uint64_t first, std::uint64_t rows, std::int64_t step) {
    std::vector<std::uint64_t> ids(rows);
    for (std::uint64_t i = 0; i < rows; ++i) ids[i] = first + i;
    return particle_frame(*form, ids, step, program);
  }

  FrameMemory memory{BufferCache::make({.huge_pages = false}), 7}, program{BufferCache::make({.huge_pages = false}), 7};
  std::shared_ptr<const RowForm> form = RowForm::make(particle_schema(), "id").value();
  Effects effects;
  std::unique_ptr<Sift> sift;
  TimeNs now = 0;
  std::uint64_t flushes = 0;
  std::map<std::string, FramePtr> store;
  std::vector<std::string> names;  // names of kept objects
  std::function<std::optional<Failure>(const std::string& name)> fails_reading;
  std::optional<Failure> disk_failure;
};

// A piece as another agent would offer it, for the element of stage 2 with this index.
inline std::pair<PieceHeader, FramePtr> offered(OneSift& agent, std::uint32_t index, std::uint64_t sequence,
                                                std::uint64_t rows, std::int64_t step) {
  std::vector<std::uint64_t> ids(rows);
  for (std::uint64_t i = 0; i < rows; ++i) ids[i] = index + i * agent.sift->geometry().settings().elements(2);
  FramePtr frame = particle_frame(*agent.form, ids, step, agent.program);
  PieceHeader header;
  header.pool = "/t";
  header.element = {2, index};
  header.source = {"b", 1};
  header.sequence = sequence;
  header.overhead_bytes = agent.form->overhead_bytes();
  header.runs = {{step, rows}};
  header.crc32c = seal(header, crc32c(std::as_bytes(std::span(ids))));
  return {header, frame};
}

// Rows of all tracks.
inline std::uint64_t rows_read(OneSift& agent) {
  TrackReader reader(agent.sift->tracks(), {}, 1000);
  std::uint64_t rows = 0;
  while (const FramePtr frame = reader.next(agent.program).value()) rows += frame->rows;
  return rows;
}

}  // namespace offpath::sift

// The parts of the sift service under a pool of one agent, without the service that joins them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sift/pools/known_pools.h"
#include "sift/pools/pool_effects.h"
#include "sift/split/particles.h"
#include "testing/sift/taken_effects.h"

namespace offpath::sift {

struct ServiceParts {
  // An agent called a.
  ServiceParts() {
    context.self = "a";
    context.process = 1;
    context.alive = {"a", "b"};
    objects.set_self("a", 1);
  }
  // A pool that its members have agreed on. `text` names all of them.
  SiftPool& add(const std::string& text, const std::vector<std::string>& members = {"a"}) {
    Settings settings = parse_settings(text).value();
    auto sift = Sift::make({.settings = settings, .self = {"a", 1}, .memory = {buffers, user}}, members).value();
    auto pool = std::make_unique<SiftPool>(SiftPool{.name = std::string(name_in(text)),
                                                    .text = text,
                                                    .reference = reference_to(text),
                                                    .user = user,
                                                    .settings = std::move(settings),
                                                    .sift = std::move(sift),
                                                    .agreement = Agreement("a", text, members),
                                                    .flushes = FlushRounds("/t", 0, members.size())});
    (void)pool->agreement.agree(now);
    return known.add(std::move(pool));
  }
  FramePtr frame(std::uint64_t rows) {
    std::vector<std::uint64_t> ids(rows);
    for (std::uint64_t i = 0; i < rows; ++i) ids[i] = i;
    return particle_frame(*RowForm::make(particle_schema(), "id").value(), ids, 1, {buffers, user});
  }
  template <class Kind>
  std::vector<Kind> take() {
    return taken_effects<Kind>(effects);
  }

  static constexpr uid_t user = 1000;
  TimeNs now = second_ns;
  std::shared_ptr<service::BufferCache> buffers = service::BufferCache::make({.huge_pages = false});
  pool::Pools objects{{}, buffers, [](std::uint64_t) { return true; }};
  ServiceContext context{{}, buffers, objects};
  UnderWay under_way;
  KnownPools known{context, under_way};
  service::Effects effects;
  std::vector<std::pair<std::uint64_t, Status>> flushed;  // by id
  std::size_t carried_out = 0;                            // how often
  PoolEffects pool_effects{context,
                           under_way,
                           [](std::uint64_t) { return true; },
                           {.flushed = [this](SiftPool&, std::uint64_t id, const Status& status, TimeNs,
                                              service::Effects&) { flushed.emplace_back(id, status); },
                            .carried_out = [this](SiftPool&, TimeNs, service::Effects&) { ++carried_out; }}};
};

}  // namespace offpath::sift

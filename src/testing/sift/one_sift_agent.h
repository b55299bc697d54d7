// One agent's pools and sift pools: requests and answers in, effects out.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sift/sift_service.h"
#include "sift/split/particles.h"
#include "testing/pool/memory_store.h"

namespace offpath::sift {

inline constexpr uid_t user = 1000, other_user = 1001;

struct OneSiftAgent {
  explicit OneSiftAgent(const std::string& name, std::shared_ptr<pool::ObjectStore> store = nullptr,
                        const SiftServiceOptions& options = {})
      : pools(pools_options(std::move(store)), buffers, [](std::uint64_t) { return true; }),
        sifts(options, buffers, [](std::uint64_t) { return true; }, pools) {
    pools.set_self(name, 1);
    sifts.set_self(name, 1);
  }
  static pool::PoolsOptions pools_options(std::shared_ptr<pool::ObjectStore> store) {
    pool::PoolsOptions options;
    options.store = std::move(store);
    return options;
  }
  // Restores the objects of its disk.
  void recover() {
    EXPECT_TRUE(pools.recover(now, effects));
    sifts.recover(now, effects);
    run_for(0);
  }
  // Runs jobs of the disk and their effects.
  void run_for(TimeNs duration) {
    for (const TimeNs end = now + duration;; now = std::min(end, now + 10 * millisecond_ns)) {
      pools.spill(now, effects);
      pools.on_time(now, effects);
      if (sifts.next_deadline() <= now) sifts.on_time(now, effects);
      for (bool any = true; std::exchange(any, false);)
        for (const service::Effect& effect : std::exchange(effects, {}))
          if (const auto* job = std::get_if<service::JobEffect>(&effect);
              job != nullptr && service::service_of(job->token) == service::ServiceId::disk) {
            pools.on_disk_job(job->token, job->run(), now, effects);
            any = true;
          } else if (const auto* stored = std::get_if<service::StoredEffect>(&effect)) {
            outcomes.push_back(stored->status);
          }
      if (now == end) return;
    }
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const SiftService::PoolStatus& pool : sifts.pools()) all.push_back(pool.name);
    return all;
  }

  TimeNs now = second_ns;
  std::shared_ptr<service::BufferCache> buffers = service::BufferCache::make({.huge_pages = false});
  pool::Pools pools;
  SiftService sifts;
  service::Effects effects;
  std::vector<Status> outcomes;  // of puts
};

}  // namespace offpath::sift

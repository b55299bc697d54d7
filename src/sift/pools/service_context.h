// State that the parts of the sift service share: this agent, its programs and the living members. The service writes
// it.
//
// Read this first in src/sift/pools, then sift_pool.h (one pool), known_pools.h, pool_making.h and pool_agreements.h
// (pools by name, and how they are made), under_way.h and pool_effects.h (their effects), and the requests:
// flush_requests.h, track_requests.h, write_requests.h.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pool/members/pools.h"
#include "service/buffer_cache.h"
#include "sift/definition.h"
#include "sift/sift_service_options.h"

namespace offpath::sift {

struct ServiceContext {
  ServiceContext(const SiftServiceOptions& service_options, std::shared_ptr<service::BufferCache> cache,
                 pool::Pools& object_pools)
      : options(service_options), buffers(std::move(cache)), pools(object_pools) {}

  SiftServiceOptions options;
  std::shared_ptr<service::BufferCache> buffers;
  pool::Pools& pools;
  std::string self{};
  std::uint64_t process = 0;
  std::vector<std::string> alive{""};  // sorted
  std::vector<std::string> cores{};    // of this agent, if it has several, sorted: each is a member (group/core_name.h)
  PlaceOf place_of{};
  std::unordered_map<service::ChannelNumber, uid_t> channels{};
};

}  // namespace offpath::sift

// Numbers of the sift service, and what is under way under them: what went into a pool's Sift, and jobs and requests
// that this agent waits for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "service/effects.h"
#include "service/token.h"
#include "sift/pools/sift_pool.h"

namespace offpath::sift {

class UnderWay {
 public:
  // The meaning of a token that went into a Sift.
  struct Input {
    enum class Kind : std::uint8_t { put, offer, own, flush } kind;
    SiftPool* pool;
    std::uint64_t token = 0;  // put: the mover's; own: the publishing element's; flush: of pool->flushes, 0: a member's
    service::ChannelNumber channel = 0;
    std::uint64_t ticket = 0;
  };
  // The meaning of an own token among the effects of the service.
  struct Work {
    enum class Kind : std::uint8_t { job, publish, flush, ask } kind;
    SiftPool* pool;
    std::uint64_t token;   // of the Sift; flush: of pool->flushes
    std::string member{};  // ask: the member that is asked
  };

  [[nodiscard]] std::uint64_t next_number() noexcept { return next_++; }

  std::uint64_t add(Input input) {
    const std::uint64_t number = next_number();
    inputs_.emplace(number, input);
    return number;
  }
  [[nodiscard]] const Input* input(std::uint64_t number) const {
    const auto found = inputs_.find(number);
    return found == inputs_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] std::optional<Input> take_input(std::uint64_t number) {
    const auto node = inputs_.extract(number);
    return node ? std::optional(node.mapped()) : std::nullopt;
  }
  // Offers of the channel, which has ended, are not under way any more.
  [[nodiscard]] std::vector<std::pair<std::uint64_t, SiftPool*>> take_offers_of(service::ChannelNumber channel) {
    std::vector<std::pair<std::uint64_t, SiftPool*>> offers;
    std::erase_if(inputs_, [&](const auto& each) {
      const Input& input = each.second;
      if (input.kind != Input::Kind::offer || input.channel != channel) return false;
      offers.emplace_back(each.first, input.pool);
      return true;
    });
    return offers;
  }

  // The token for an effect.
  std::uint64_t add(Work work) {
    const std::uint64_t number = next_number();
    works_.emplace(number, std::move(work));
    return service::token_of(service::ServiceId::sift, number);
  }
  [[nodiscard]] std::optional<Work> take_work(std::uint64_t number) {
    auto node = works_.extract(number);
    return node ? std::optional(std::move(node.mapped())) : std::nullopt;
  }

  [[nodiscard]] bool concerns(const SiftPool& pool) const {
    const auto concerns_it = [&](const auto& each) { return each.second.pool == &pool; };
    return std::ranges::any_of(works_, concerns_it) || std::ranges::any_of(inputs_, concerns_it);
  }

 private:
  std::unordered_map<std::uint64_t, Input> inputs_;
  std::unordered_map<std::uint64_t, Work> works_;
  std::uint64_t next_ = 1;
};

}  // namespace offpath::sift

#include "sift/pools/awaited_pools.h"

#include <algorithm>

#include "base/log.h"
#include "sift/definition.h"
#include "sift/split/range_sample.h"

namespace offpath::sift {

Result<std::string> AwaitedPools::add(std::string_view text, uid_t user, const Failure& why) {
  const auto known = all_.find(name_in(text));
  if (known == all_.end()) {
    const auto own = std::ranges::count_if(all_, [&](const auto& each) { return each.second.user == user; });
    if (static_cast<std::size_t>(own) >= user_pools_max_)
      return fail(Error::too_large,
                  "{} sift pools of user {} wait for members, which is the limit of each user (limits.user_pools_max)",
                  own, user);
    all_.emplace(name_in(text), AwaitedPool{std::string(text), user});
    ++changes_;
    log(LogLevel::info, "pool \"{}\" will be made later: {}", text, why.message);
    return std::string(text);
  }
  if (known->second.user != user && user != 0)
    return fail(Error::denied, "pool \"{}\" belongs to user {}, not to user {}", name_in(text), known->second.user,
                user);
  if (text.size() == name_in(text).size() || text == known->second.text) return known->second.text;
  return fail(Error::exists, "pool \"{}\" already waits for members, as \"{}\"", text, known->second.text);
}

Result<std::optional<std::pair<std::string, uid_t>>> AwaitedPools::meant(std::string_view text, uid_t user) const {
  const auto awaited = all_.find(name_in(text));
  if (awaited == all_.end()) return std::nullopt;
  const AwaitedPool& waits = awaited->second;
  const std::string& wanted = waits.learnt.empty() ? waits.text : waits.learnt;
  const bool named = text.size() == name_in(text).size() || (text == waits.text && !waits.learnt.empty());
  if (!named || text == wanted) return std::nullopt;
  if (user != waits.user && user != 0)
    return fail(Error::denied, "pool \"{}\" belongs to user {}, not to user {}", text, waits.user, user);
  return std::pair(wanted, waits.user);
}

Result<std::string> AwaitedPools::learn(std::string_view name, const service::Frame* frame) {
  AwaitedPool& awaited = all_.find(name)->second;
  if (is_reference(awaited.text)) return std::string();
  if (!awaited.learnt.empty()) return awaited.learnt;
  OFP_ASSIGN(const Settings settings, parse_settings(awaited.text));
  if (!settings.samples_ranges) return std::string();
  if (frame == nullptr || !frame->arrow)
    return fail(Error::schema,
                "pool \"{}\" learns its ranges of Arrow frames: sift pools take those of the destination ipc-page or "
                "ipc",
                name);
  OFP_ASSIGN(awaited.learnt, with_sampled_ranges(awaited.text, settings, Bytes(frame->buffer.data(), frame->bytes)));
  return awaited.learnt;
}

void AwaitedPools::forget_learnt(std::string_view name) {
  if (AwaitedPool* const awaited = find(name)) awaited->learnt.clear();
}

AwaitedPool* AwaitedPools::find(std::string_view text) {
  const auto found = all_.find(name_in(text));
  return found == all_.end() ? nullptr : &found->second;
}

bool AwaitedPools::has(std::string_view text) const { return all_.contains(name_in(text)); }

std::optional<AwaitedPool> AwaitedPools::take(std::string_view text) {
  const auto found = all_.find(name_in(text));
  if (found == all_.end()) return std::nullopt;
  AwaitedPool taken = std::move(found->second);
  all_.erase(found);
  return taken;
}

void AwaitedPools::drop(std::string_view text) { changes_ += all_.erase(std::string(name_in(text))); }

}  // namespace offpath::sift

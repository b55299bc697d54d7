#include "pool/table/file_writes.h"

#include <algorithm>
#include <utility>

#include "channel/offered_file.h"
#include "pool/table/stream_file.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/pool_messages.h"
#include "wire/messages/replies.h"

namespace offpath::pool {

using service::FailEffect;

namespace {

constexpr std::size_t offers_max = 1024;  // of one channel
constexpr std::size_t later_max = 64;     // of one user

}  // namespace

void FileWrites::on_channel_closed(ChannelNumber channel) {
  offers_.erase(channel);
  std::erase_if(waiting_, [channel](const Write& each) { return each.channel == channel; });
  std::erase_if(later_, [channel](const Later& each) { return each.write.channel == channel; });
  for (const auto& [token, job] : jobs_)
    if (job.channel == channel) job.progress->cancelled = true;
}

void FileWrites::on_offer(ChannelNumber channel, std::uint64_t number, Result<Fd> fd, Effects& effects) {
  const auto asked = std::ranges::find_if(
      waiting_, [&](const Write& each) { return each.channel == channel && each.offer == number; });
  if (asked != waiting_.end()) {
    const Write write = std::move(*asked);
    waiting_.erase(asked);
    return begin(write, std::move(fd), effects);
  }
  auto& offers = offers_[channel];
  offers.emplace(number, std::move(fd));
  // A request names an offered descriptor soon. More were offered than requests named, so the oldest is dropped.
  if (offers.size() > offers_max) offers.erase(offers.begin());
}

Fd FileWrites::take_offer(ChannelNumber channel, std::uint64_t number) {
  const auto at = offers_.find(channel);
  if (at == offers_.end()) return {};
  const auto node = at->second.extract(number);
  return node && node.mapped() ? std::move(*node.mapped()) : Fd{};
}

void FileWrites::on_request(ChannelNumber channel, uid_t user, const channel::Entry& request, TimeNs now,
                            Effects& effects) {
  const auto refuse = [&](Failure failure) {
    effects.push_back(FailEffect{channel, request.ticket, wire::any_reply, std::move(failure)});
  };
  wire::PoolWrite write{};
  if (auto status = wire::decode(request.payload, write); !status) return refuse(std::move(status).error());
  // Programs may name a pool with its options anywhere.
  Write asked{channel,     request.ticket,
              user,        std::string(write.pool.substr(0, write.pool.find('?'))),
              write.offer, deadline_after(now, offer_wait_ns_)};
  if (auto may = objects_.may_read(asked.pool, user); !may) return refuse(std::move(may).error());
  if (const auto offers = offers_.find(channel); offers != offers_.end())
    if (const auto offer = offers->second.find(write.offer); offer != offers->second.end()) {
      Result<Fd> fd = std::move(offer->second);
      offers->second.erase(offer);
      return begin(asked, std::move(fd), effects);
    }
  const auto waits = [channel](const Write& each) { return each.channel == channel; };
  if (const auto other = std::ranges::find_if(waiting_, waits); other != waiting_.end())
    return refuse({Error::too_large, fmt::format("a write waits for descriptor {}; one at a time, not {} too",
                                                 other->offer, write.offer)});
  waiting_.push_back(std::move(asked));
}

void FileWrites::begin(const Write& write, Result<Fd> offered, Effects& effects) {
  Fd descriptor = offered ? std::move(*offered) : Fd();
  Status may = offered ? channel::check_offered_file(descriptor.get()) : tl::unexpected(std::move(offered).error());
  const bool later = std::ranges::any_of(jobs_, [&](const auto& each) { return each.second.user == write.user; });
  const auto of_user = [&](const Later& each) { return each.write.user == write.user; };
  if (may && later && std::ranges::count_if(later_, of_user) >= static_cast<std::ptrdiff_t>(later_max))
    may = fail(Error::too_large, "{} writes of user {} wait for their turn, which is the limit", later_max, write.user);
  if (!may)
    effects.push_back(FailEffect{write.channel, write.ticket, wire::any_reply, std::move(may).error()});
  else if (later)
    later_.push_back({write, std::move(descriptor)});
  else
    start(write, std::move(descriptor), effects);
}

Status FileWrites::may_write(uid_t user) {
  std::erase_if(hanging_, [](const auto& each) { return each.second.expired(); });
  if (!hanging_.contains(user)) return {};
  return fail(Error::unsupported,
              "a write of user {} waits for the process that holds its file: until it ends, the user's programs have "
              "to write other files themselves",
              user);
}

void FileWrites::start(const Write& write, Fd descriptor, Effects& effects) {
  auto objects = may_write(write.user).and_then([&] { return objects_.visible(write.pool, write.user); });
  if (!objects)
    return effects.push_back(FailEffect{write.channel, write.ticket, wire::any_reply, std::move(objects).error()});
  const auto progress = std::make_shared<Progress>();
  const std::uint64_t token = next_token_++;
  jobs_.emplace(token, Job{write.channel, write.ticket, write.user, progress});
  const auto work = [objects = std::move(*objects), fd = std::make_shared<Fd>(std::move(descriptor)), progress] {
    return write_stream(objects, fd->get(), progress->cancelled).map([&](auto bytes) { progress->bytes = bytes; });
  };
  effects.push_back(service::JobEffect{service::token_of(service::ServiceId::pool, token), work});
}

void FileWrites::on_job(std::uint64_t token, Status status, Effects& effects) {
  const auto at = jobs_.find(service::number_of(token));
  if (at == jobs_.end()) return;
  const Job job = at->second;
  jobs_.erase(at);
  if (status) {
    written_bytes_ += job.progress->bytes;
    effects.push_back(service::ReplyEffect{job.channel, job.ticket, wire::Done{job.progress->bytes}});
  } else {
    if (status.error().code == Error::timeout) hanging_.insert_or_assign(job.user, job.progress);
    job.progress->cancelled = true;
    effects.push_back(FailEffect{job.channel, job.ticket, wire::any_reply, std::move(status).error()});
  }
  // A write that fails at once has not begun, so the next one starts.
  const auto of_user = [&job](const Later& each) { return each.write.user == job.user; };
  for (auto next = later_.begin(); (next = std::find_if(next, later_.end(), of_user)) != later_.end();) {
    const std::size_t before = jobs_.size();
    Later later = std::move(*next);
    next = later_.erase(next);
    start(later.write, std::move(later.descriptor), effects);
    if (jobs_.size() > before) return;
  }
}

void FileWrites::on_time(TimeNs now, Effects& effects) {
  std::erase_if(waiting_, [&](const Write& write) {
    if (write.deadline > now) return false;
    Failure why{Error::invalid, fmt::format("no descriptor was offered under number {}", write.offer)};
    effects.push_back(FailEffect{write.channel, write.ticket, wire::any_reply, std::move(why)});
    return true;
  });
}

void FileWrites::add_pools(std::set<std::string_view>& names) const {
  for (const Write& write : waiting_) names.insert(write.pool);
}

}  // namespace offpath::pool

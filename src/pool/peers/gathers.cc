#include "pool/peers/gathers.h"

#include <algorithm>
#include <utility>

#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/pool_messages.h"
#include "wire/messages/replies.h"

namespace offpath::pool {

namespace {

constexpr std::size_t page_of_reply_bytes = 16 * 1024;
constexpr std::size_t items_max = 1 << 20;            // of one listing
constexpr std::uint64_t items_bytes_max = 512 << 20;  // of keys of all listings of one user

}  // namespace

void Gathers::begin(ChannelNumber channel, uid_t user, const channel::Entry& request, bool drops, TimeNs now,
                    Effects& effects) {
  const auto refuse = [&](Failure failure) {
    PoolContext::refuse(channel, request.ticket, std::move(failure), effects);
  };
  Gather made{.channel = channel, .ticket = request.ticket, .user = user, .drops = drops};
  wire::PoolList list{};
  wire::PoolDrop drop{};
  Status status = drops ? wire::decode(request.payload, drop) : wire::decode(request.payload, list);
  if (!status) return refuse(std::move(status).error());
  const std::string_view text = drops ? drop.pool : list.pool;
  made.pool = text.substr(0, text.find('?'));
  made.row_glob = drops ? drop.row_glob : list.row_glob;
  made.column_glob = drops ? drop.column_glob : list.column_glob;
  if (const auto before = listings_.find(channel);
      !drops && list.after > 0 && before != listings_.end() && before->second.pool == made.pool &&
      before->second.row_glob == made.row_glob && before->second.column_glob == made.column_glob)
    return answer_page(channel, request.ticket, list.after, effects);
  const Definition* const known = context_.directory.known(made.pool);
  if (known == nullptr) return refuse({Error::not_found, fmt::format("there is no pool \"{}\"", made.pool)});
  auto charge = context_.table.charge(made.user, made.pool.size() + made.row_glob.size() + made.column_glob.size());
  if (!charge) return refuse(std::move(charge).error());
  made.charge = std::move(*charge);
  made.listed = std::make_shared<ListedBytes>(listed_bytes_, made.user);
  const std::uint64_t number = context_.numbers.take();
  Gather& gather = gathers_.emplace(number, std::move(made)).first->second;
  const std::vector<std::string> members = known->members;
  for (const std::string& member : members) {
    if (member == context_.directory.self()) continue;
    ++gather.asked;
    if (drops)
      ask_drop(number, member, now, effects);
    else
      ask_page(number, member, 0, now, effects);
  }
  ++gather.asked;  // this member
  if (drops) return drop_here(number, now, effects);
  list_here(gather);
  answered(number, gather, effects);
}

void Gathers::ask_drop(std::uint64_t number, const std::string& member, TimeNs now, Effects& effects) {
  const Gather& gather = gathers_.at(number);
  Asking asking{Asking::Kind::gather, number, member};
  asking.charge = gather.charge;
  context_.requests.ask(
      std::move(asking), wire::EntryKind::peer_drop, deadline_after(now, context_.options.ask_wait_ns), nullptr, 0,
      compose_drop(gather.user, context_.directory.text_of(gather.pool), gather.row_glob, gather.column_glob), effects);
}

void Gathers::ask_page(std::uint64_t number, const std::string& member, std::uint64_t after, TimeNs now,
                       Effects& effects) {
  const Gather& gather = gathers_.at(number);
  Asking asking{Asking::Kind::gather, number, member};
  asking.charge = gather.charge;
  context_.requests.ask(
      std::move(asking), wire::EntryKind::peer_list, deadline_after(now, context_.options.ask_wait_ns), nullptr, 0,
      [user = std::uint64_t{gather.user}, after, text = context_.directory.text_of(gather.pool), row = gather.row_glob,
       column = gather.column_glob](const service::AskedMemory&, std::vector<std::byte>& payload) {
        wire::encode(wire::PeerList{user, after, text, row, column}, payload);
      },
      effects);
}

// This member's objects, and those that it has sent to others.
void Gathers::drop_here(std::uint64_t number, TimeNs now, Effects& effects) {
  Gather& gather = gathers_.at(number);
  if (auto dropped = drops_.drop_here(gather.pool, gather.user, gather.row_glob, gather.column_glob)) {
    gather.dropped += *dropped;
    gather.found = true;
  } else if (dropped.error().code != Error::not_found) {
    gather.failure = std::move(dropped).error();
    return answered(number, gather, effects);
  }
  drops_.follow(
      gather.pool, gather.user, gather.row_glob, gather.column_glob,
      [this, number](Result<std::uint64_t> dropped, Effects& then) {
        const auto at = gathers_.find(number);
        if (at == gathers_.end()) return;
        if (dropped)
          at->second.dropped += *dropped;
        else if (!at->second.failure)
          at->second.failure = std::move(dropped).error();
        answered(number, at->second, then);
      },
      now, effects);
}

void Gathers::list_here(Gather& gather) {
  bool more = false;
  auto items = context_.table.list(gather.pool, gather.user, gather.row_glob, gather.column_glob, 0, SIZE_MAX, more);
  if (items) {
    gather.found = true;
    for (FrameTable::Item& item : *items) {
      gather.listed->add(item.row.size() + item.column.size());
      gather.items.insert_or_assign({item.row, item.column}, std::move(item));
    }
  } else if (items.error().code != Error::not_found) {
    gather.failure = std::move(items).error();
  }
}

void Gathers::on_answer(std::uint64_t number, const std::string& member, Result<service::Answer> answer, TimeNs now,
                        Effects& effects) {
  const auto at = gathers_.find(number);
  if (at == gathers_.end()) return;
  Gather& gather = at->second;
  Status status;
  std::uint64_t after = 0;
  if (!answer) {
    status = tl::unexpected(std::move(answer).error());
  } else if (gather.drops) {
    wire::Done done{};
    status = wire::decode(answer->payload, done);
    gather.dropped += done.value;
  } else {
    status = add_listed(gather, *answer, after);
  }
  if (status)
    gather.found = true;
  else if (status.error().code != Error::not_found && !gather.failure)
    gather.failure = std::move(status).error();
  if (after != 0 && !gather.failure) return ask_page(number, member, after, now, effects);
  answered(number, gather, effects);
}

// `after`: not 0 if the member has more entries behind those of its answer.
Status Gathers::add_listed(Gather& gather, const service::Answer& answer, std::uint64_t& after) {
  wire::Listed listed{};
  Status status = wire::decode(answer.payload, listed);
  std::uint64_t of_user = gather.listed->add(0);
  for (const wire::ListedEntry& entry : listed.entries) {
    if (!status || gather.items.size() >= items_max || of_user >= items_bytes_max) break;
    of_user = gather.listed->add(entry.row_key.size() + entry.column_key.size());
    gather.items.emplace(FrameTable::Keys{entry.row_key, entry.column_key},
                         FrameTable::Item{entry.sequence, entry.bytes, entry.rows, entry.arrow,
                                          std::string(entry.row_key), std::string(entry.column_key)});
    after = std::max(after, entry.sequence);
  }
  if (!listed.more) after = 0;
  if (gather.items.size() >= items_max || of_user >= items_bytes_max)
    status = fail(Error::too_large,
                  "a listing of {} objects, at most {} are allowed, or keys of {} bytes in all listings of user {}, at "
                  "most {} are allowed: select fewer objects by a pattern",
                  gather.items.size(), items_max, of_user, gather.user, items_bytes_max);
  return status;
}

void Gathers::answered(std::uint64_t number, Gather& gather, Effects& effects) {
  if (--gather.asked == 0) end(number, effects);
}

void Gathers::end(std::uint64_t number, Effects& effects) {
  const auto node = gathers_.extract(number);
  Gather& gather = node.mapped();
  if (gather.failure) return PoolContext::refuse(gather.channel, gather.ticket, *gather.failure, effects);
  if (!gather.found)
    return PoolContext::refuse(gather.channel, gather.ticket,
                               {Error::not_found, fmt::format("there is no pool \"{}\"", gather.pool)}, effects);
  if (gather.drops) {
    effects.push_back(service::ReplyEffect{gather.channel, gather.ticket, wire::Done{gather.dropped}});
    return;
  }
  auto items = std::make_shared<std::vector<FrameTable::Item>>();
  items->reserve(gather.items.size());
  // Each member numbers its own objects in storing order. There is no such order between members, so keys decide.
  const Definition* const known = context_.directory.known(gather.pool);
  for (auto& [keys, item] : gather.items) {
    item.sequence = items->size() + 1;
    if (known != nullptr)
      if (std::vector<std::string> owners = Directory::owners(*known, item.row); !owners.empty())
        item.member = std::move(owners.front());
    items->push_back(std::move(item));
  }
  listings_.insert_or_assign(gather.channel,
                             Listing{gather.pool, gather.row_glob, gather.column_glob, std::move(items),
                                     std::move(gather.listed), known != nullptr ? Directory::view_of(*known) : 0});
  answer_page(gather.channel, gather.ticket, 0, effects);
}

void Gathers::answer_page(ChannelNumber channel, std::uint64_t ticket, std::uint64_t after, Effects& effects) {
  const Listing& listing = listings_.at(channel);
  wire::Listed listed{};
  listed.view = listing.view;
  std::size_t bytes = 0;
  for (std::size_t i = after; i < listing.items->size() && !listed.more; ++i) {
    const FrameTable::Item& item = (*listing.items)[i];
    bytes += 31 + item.row.size() + item.column.size() + item.member.size();
    listed.more = bytes > page_of_reply_bytes && i > after;
    if (!listed.more)
      listed.entries.push_back({item.sequence, item.bytes, item.rows, item.arrow, item.row, item.column, item.member});
  }
  const bool last = !listed.more;
  effects.push_back(service::ListedEffect{channel, ticket, std::move(listed), listing.items});
  if (last) listings_.erase(channel);
}

void Gathers::on_channel_closed(ChannelNumber channel) {
  std::erase_if(gathers_, [channel](const auto& each) { return each.second.channel == channel; });
  listings_.erase(channel);
}

void Gathers::add_pools(std::set<std::string_view>& names) const {
  for (const auto& [number, gather] : gathers_) names.insert(gather.pool);
}

}  // namespace offpath::pool

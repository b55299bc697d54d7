// Lists and drops: asked of all members, and put together.
#include <algorithm>
#include <memory>
#include <utility>

#include "pool/members/pools.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/pool_messages.h"
#include "wire/messages/replies.h"

namespace offpath::pool {

using service::AskedMemory;
using wire::EntryKind;

namespace {

constexpr std::size_t page_of_reply_bytes = 16 * 1024;
constexpr std::size_t items_max = 1 << 20;            // of one listing
constexpr std::uint64_t items_bytes_max = 512 << 20;  // of keys of all listings of one user

}  // namespace

void Pools::gather(ChannelNumber channel, const channel::Entry& request, bool drops, TimeNs now, Effects& effects) {
  Gather made{.channel = channel, .ticket = request.ticket, .user = channels_.at(channel).user, .drops = drops};
  wire::PoolList list{};
  wire::PoolDrop drop{};
  Status status = drops ? wire::decode(request.payload, drop) : wire::decode(request.payload, list);
  if (!status) return PoolContext::refuse(channel, request.ticket, std::move(status).error(), effects);
  const std::string_view text = drops ? drop.pool : list.pool;
  made.pool = text.substr(0, text.find('?'));
  made.row_glob = drops ? drop.row_glob : list.row_glob;
  made.column_glob = drops ? drop.column_glob : list.column_glob;
  Listing& before = channels_.at(channel).listing;
  if (!drops && list.after > 0 && before.items && before.pool == made.pool && before.row_glob == made.row_glob &&
      before.column_glob == made.column_glob)
    return answer_page(channel, request.ticket, before, list.after, effects);
  const Definition* const known = context_.directory.known(made.pool);
  if (known == nullptr)
    return PoolContext::refuse(channel, request.ticket,
                               {Error::not_found, fmt::format("there is no pool \"{}\"", made.pool)}, effects);
  auto charge = context_.table.charge(made.user, made.pool.size() + made.row_glob.size() + made.column_glob.size());
  if (!charge) return PoolContext::refuse(channel, request.ticket, std::move(charge).error(), effects);
  made.charge = std::move(*charge);
  made.listed = std::make_shared<ListedBytes>(listed_bytes_, made.user);
  const std::uint64_t number = context_.numbers.take();
  Gather& gather = gathers_.emplace(number, std::move(made)).first->second;
  std::vector<std::string> members = known->members;
  for (const std::string& member : members) {
    if (member == context_.directory.self()) continue;
    ++gather.asked;
    if (!drops) {
      ask_page(number, member, 0, now, effects);
      continue;
    }
    Asking asking{Asking::Kind::gather, number, member};
    asking.charge = gather.charge;
    context_.requests.ask(
        std::move(asking), EntryKind::peer_drop, deadline_after(now, context_.options.ask_wait_ns), nullptr, 0,
        [user = std::uint64_t{gather.user}, text = context_.directory.text_of(gather.pool), row = gather.row_glob,
         column = gather.column_glob](const AskedMemory&, std::vector<std::byte>& payload) {
          wire::encode(wire::PeerDrop{user, text, row, column}, payload);
        },
        effects);
  }
  ++gather.asked;  // this member
  gather_here(number, effects);
}

// What this member has of it, and what it has sent to others.
void Pools::gather_here(std::uint64_t number, Effects& effects) {
  Gather& gather = gathers_.at(number);
  if (gather.drops) {
    if (auto dropped = drop_here(gather.pool, gather.user, gather.row_glob, gather.column_glob)) {
      gather.dropped += *dropped;
      gather.found = true;
    } else if (dropped.error().code != Error::not_found) {
      gather.failure = std::move(dropped).error();
      if (--gather.asked == 0) gathered(number, effects);
      return;
    }
    return follow_rows(
        gather.pool, gather.user, gather.row_glob, gather.column_glob,
        [this, number](Result<std::uint64_t> dropped, Effects& then) {
          const auto at = gathers_.find(number);
          if (at == gathers_.end()) return;
          if (dropped)
            at->second.dropped += *dropped;
          else if (!at->second.failure)
            at->second.failure = std::move(dropped).error();
          if (--at->second.asked == 0) gathered(number, then);
        },
        effects);
  }
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
  if (--gather.asked == 0) gathered(number, effects);
}

// Rows of which this member is the first owner are counted; the other owners drop theirs.
Result<std::uint64_t> Pools::drop_here(const std::string& pool, uid_t user, std::string_view row_glob,
                                       std::string_view column_glob) {
  OFP_ASSIGN(const std::vector<FrameTable::Keys> dropped, context_.table.drop(pool, user, row_glob, column_glob));
  Definition* const known = context_.directory.known(pool);
  const auto says_all = [](std::string_view glob) { return glob.empty() || glob == "*"; };
  if (known != nullptr && says_all(row_glob) && says_all(column_glob)) {
    known->lost.clear();  // what is lost was dropped, too
    known->dropped = known->streams == 0;
  }
  if (known == nullptr) return dropped.size();
  return static_cast<std::uint64_t>(std::ranges::count_if(dropped, [&](const FrameTable::Keys& keys) {
    const std::vector<std::string> all = Directory::owners(*known, keys.first);
    return all.empty() || all.front() == context_.directory.self();
  }));
}

Result<std::vector<QuerySource>> Pools::choose(const std::string& pool, std::string_view row_glob,
                                               std::string_view column_glob, uid_t user) {
  OFP_TRY(check_not_reserved(pool));
  OFP_ASSIGN(const Definition* const definition, context_.directory.find(pool));
  if (definition != nullptr && context_.directory.is_elsewhere(*definition))
    return fail(Error::unsupported, "pool \"{}\" lies on {} members: ask each of them, or read its objects",
                definition->name.name, definition->members.size());
  return context_.table.choose(definition != nullptr ? definition->name.name : pool, row_glob, column_glob, user);
}

void Pools::ask_page(std::uint64_t number, const std::string& member, std::uint64_t after, TimeNs now,
                     Effects& effects) {
  const Gather& gather = gathers_.at(number);
  Asking asking{Asking::Kind::gather, number, member};
  asking.charge = gather.charge;
  context_.requests.ask(
      std::move(asking), EntryKind::peer_list, deadline_after(now, context_.options.ask_wait_ns), nullptr, 0,
      [user = std::uint64_t{gather.user}, after, text = context_.directory.text_of(gather.pool), row = gather.row_glob,
       column = gather.column_glob](const AskedMemory&, std::vector<std::byte>& payload) {
        wire::encode(wire::PeerList{user, after, text, row, column}, payload);
      },
      effects);
}

void Pools::on_gather_answer(std::uint64_t number, const std::string& member, Result<Answer> answer, TimeNs now,
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
    wire::Listed listed{};
    status = wire::decode(answer->payload, listed);
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
                    "{} objects, where a listing has at most {}, or keys of {} bytes in all listings of user {}, which "
                    "have at most {}; ask for fewer by a pattern",
                    gather.items.size(), items_max, of_user, gather.user, items_bytes_max);
  }
  if (status)
    gather.found = true;
  else if (status.error().code != Error::not_found && !gather.failure)
    gather.failure = std::move(status).error();
  if (after != 0 && !gather.failure) return ask_page(number, member, after, now, effects);
  if (--gather.asked == 0) gathered(number, effects);
}

void Pools::gathered(std::uint64_t number, Effects& effects) {
  const auto node = gathers_.extract(number);
  Gather& gather = node.mapped();
  const auto channel = channels_.find(gather.channel);
  if (channel == channels_.end()) return;
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
  // Members count for themselves in which order objects came; between members there is none, so it is that of keys.
  for (auto& [keys, item] : gather.items) {
    item.sequence = items->size() + 1;
    items->push_back(std::move(item));
  }
  channel->second.listing = {gather.pool, gather.row_glob, gather.column_glob, std::move(items),
                             std::move(gather.listed)};
  answer_page(gather.channel, gather.ticket, channel->second.listing, 0, effects);
}

void Pools::answer_page(ChannelNumber channel, std::uint64_t ticket, Listing& listing, std::uint64_t after,
                        Effects& effects) {
  wire::Listed listed{};
  std::size_t bytes = 0;
  for (std::size_t i = after; i < listing.items->size() && !listed.more; ++i) {
    const FrameTable::Item& item = (*listing.items)[i];
    bytes += 29 + item.row.size() + item.column.size();
    listed.more = bytes > page_of_reply_bytes && i > after;
    if (!listed.more)
      listed.entries.push_back({item.sequence, item.bytes, item.rows, item.arrow, item.row, item.column});
  }
  const bool last = !listed.more;
  effects.push_back(service::ListedEffect{channel, ticket, std::move(listed), listing.items});
  if (last) listing = {};
}

}  // namespace offpath::pool

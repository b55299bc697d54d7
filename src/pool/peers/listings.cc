#include "pool/peers/listings.h"

#include <algorithm>
#include <utility>

#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/replies.h"

namespace offpath::pool {

void Listings::ask(const std::string& member, const std::string& pool, const std::string& row, Listed listed,
                   TimeNs now, Effects& effects) {
  // The group also reports not_found for a member that this agent has not met; such a member may have objects.
  if (!context_.directory.is_alive(member))
    return listed(fail(Error::peer_lost, "member {} is not alive", member), now, effects);
  const std::uint64_t number = context_.numbers.take();
  listings_.emplace(number, Listing{pool, row, {}, std::move(listed)});
  ask_page(number, member, 0, now, effects);
}

void Listings::ask_page(std::uint64_t number, const std::string& member, std::uint64_t after, TimeNs now,
                        Effects& effects) {
  const Listing& listing = listings_.at(number);
  context_.requests.ask(
      {Asking::Kind::listing, number, member}, wire::EntryKind::peer_list,
      deadline_after(now, context_.options.ask_wait_ns), nullptr, 0,
      [user = std::uint64_t{context_.table.user_of(listing.pool)}, after,
       text = context_.directory.text_of(listing.pool),
       row = listing.row](const service::AskedMemory&, std::vector<std::byte>& payload) {
        wire::encode(wire::PeerList{user, after, text, row, "*"}, payload);
      },
      effects);
}

void Listings::on_answer(std::uint64_t number, const std::string& member, Result<service::Answer> answer, TimeNs now,
                         Effects& effects) {
  Listing& listing = listings_.at(number);
  const auto take = [&]() -> Result<std::uint64_t> {
    if (!answer && answer.error().code == Error::not_found) return 0;  // it has nothing of the pool
    OFP_TRY(answer);
    wire::Listed listed{};
    OFP_TRY(wire::decode(answer->payload, listed));
    std::uint64_t after = 0;
    for (const wire::ListedEntry& entry : listed.entries) {
      listing.items.push_back({entry.sequence, entry.bytes, entry.rows, entry.arrow, std::string(entry.row_key),
                               std::string(entry.column_key)});
      after = std::max(after, entry.sequence);
    }
    return listed.more ? after : 0;
  };
  const Result<std::uint64_t> after = take();
  if (after && *after != 0) return ask_page(number, member, *after, now, effects);
  const Listing done = std::move(listings_.extract(number).mapped());
  if (after)
    done.listed(done.items, now, effects);
  else
    done.listed(tl::unexpected(after.error()), now, effects);
}

Status Listings::serve(ChannelNumber channel, const channel::Entry& request, Effects& effects) const {
  wire::PeerList list{};
  OFP_TRY(wire::decode(request.payload, list));
  OFP_TRY(context_.directory.may_be_named(list.pool));
  OFP_ASSIGN(const Definition* const definition, context_.directory.find(list.pool));
  if (definition == nullptr) return fail(Error::not_found, "there is no pool \"{}\"", list.pool);
  bool more = false;
  OFP_ASSIGN(auto items, context_.table.list(definition->name.name, static_cast<uid_t>(list.user), list.row_glob,
                                             list.column_glob, list.after, FrameTable::listed_bytes_max, more));
  FrameTable::answer_list(channel, request.ticket, std::move(items), more, effects);
  return {};
}

void Listings::add_pools(std::set<std::string_view>& names) const {
  for (const auto& [number, listing] : listings_) names.insert(listing.pool);
}

}  // namespace offpath::pool

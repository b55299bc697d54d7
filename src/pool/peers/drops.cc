#include "pool/peers/drops.h"

#include <algorithm>
#include <utility>

#include "pool/directory/glob.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/replies.h"

namespace offpath::pool {

MemberRequests::Compose compose_drop(uid_t user, std::string text, std::string row_glob, std::string column_glob) {
  return [user = std::uint64_t{user}, text = std::move(text), row = std::move(row_glob),
          column = std::move(column_glob)](const service::AskedMemory&, std::vector<std::byte>& payload) {
    wire::encode(wire::PeerDrop{user, text, row, column}, payload);
  };
}

Result<std::uint64_t> Drops::drop_here(const std::string& pool, uid_t user, std::string_view row_glob,
                                       std::string_view column_glob) {
  OFP_ASSIGN(const std::vector<FrameTable::Keys> dropped, context_.table.drop(pool, user, row_glob, column_glob));
  Definition* const known = context_.directory.known(pool);
  if (known == nullptr) return dropped.size();
  const auto says_all = [](std::string_view glob) { return glob.empty() || glob == "*"; };
  if (says_all(row_glob) && says_all(column_glob)) {
    known->lost.clear();  // lost objects were dropped, too
    known->dropped = known->streams == 0;
  }
  return static_cast<std::uint64_t>(std::ranges::count_if(dropped, [&](const FrameTable::Keys& keys) {
    const std::vector<std::string> all = Directory::owners(*known, keys.first);
    return all.empty() || all.front() == context_.directory.self();
  }));
}

Status Drops::serve(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  wire::PeerDrop drop{};
  OFP_TRY(wire::decode(request.payload, drop));
  OFP_TRY(context_.directory.may_be_named(drop.pool));
  OFP_ASSIGN(const Definition* const definition, context_.directory.find(drop.pool));
  if (definition == nullptr) return fail(Error::not_found, "there is no pool \"{}\"", drop.pool);
  const auto user = static_cast<uid_t>(drop.user);
  OFP_ASSIGN(const std::uint64_t dropped, drop_here(definition->name.name, user, drop.row_glob, drop.column_glob));
  follow(
      definition->name.name, user, drop.row_glob, drop.column_glob,
      [channel, ticket = request.ticket, dropped](Result<std::uint64_t> followed, Effects& then) {
        if (followed)
          then.push_back(service::ReplyEffect{channel, ticket, wire::Done{dropped + *followed}});
        else
          PoolContext::refuse(channel, ticket, std::move(followed).error(), then);
      },
      now, effects);
  return {};
}

void Drops::follow(const std::string& pool, uid_t user, std::string_view row_glob, std::string_view column_glob,
                   Followed over, TimeNs now, Effects& effects) {
  const std::uint64_t number = context_.numbers.take();
  Following& following = followings_.emplace(number, Following{.user = user, .over = std::move(over)}).first->second;
  ++following.open;  // this call
  std::vector<Sent> sent;
  std::erase_if(sent_, [&](Sent& each) {  // each move is followed once, so two members that sent a row to each other
                                          // end
    if (each.pool != pool || !glob_matches(row_glob, each.keys.first) || !glob_matches(column_glob, each.keys.second))
      return false;
    if (each.at > now - context_.options.ask_wait_ns) sent.push_back(std::move(each));
    return true;
  });
  for (const std::uint64_t move : moves_.under_way(pool, row_glob, column_glob)) {
    of_moves_.emplace(move, number);
    ++following.open;
  }
  for (const Sent& each : sent) drop_at(number, each.pool, each.keys, each.owners, now, effects);
  end(number, effects);
}

void Drops::on_move_ended(std::uint64_t move, const Place& place, const std::vector<std::string>& owners, TimeNs now,
                          Effects& effects) {
  const FrameTable::Keys keys{place.row_key, place.column_key};
  while (!sent_.empty() && sent_.front().at <= now - context_.options.ask_wait_ns) sent_.pop_front();
  sent_.push_back({now, place.pool, keys, owners});
  std::vector<std::uint64_t> followings;
  const auto [first, last] = of_moves_.equal_range(move);
  for (auto at = first; at != last; ++at) followings.push_back(at->second);
  of_moves_.erase(first, last);
  for (const std::uint64_t number : followings) {
    drop_at(number, place.pool, keys, owners, now, effects);
    end(number, effects);
  }
}

void Drops::drop_at(std::uint64_t number, const std::string& pool, const FrameTable::Keys& keys,
                    const std::vector<std::string>& owners, TimeNs now, Effects& effects) {
  Following& following = followings_.at(number);
  for (const std::string& owner : owners) {
    if (owner == context_.directory.self() || !context_.directory.is_alive(owner)) continue;
    ++following.open;
    context_.requests.ask({Asking::Kind::follow, number, owner}, wire::EntryKind::peer_drop,
                          deadline_after(now, context_.options.ask_wait_ns), nullptr, 0,
                          compose_drop(following.user, context_.directory.text_of(pool), literal_glob(keys.first),
                                       literal_glob(keys.second)),
                          effects);
  }
}

void Drops::on_answer(std::uint64_t number, const Result<service::Answer>& answer, Effects& effects) {
  const auto at = followings_.find(number);
  if (at == followings_.end()) return;
  wire::Done done{};
  if (answer && wire::decode(answer->payload, done))
    at->second.dropped += done.value;
  else if (!answer && answer.error().code != Error::not_found && !at->second.failure)
    at->second.failure = answer.error();
  end(number, effects);
}

void Drops::end(std::uint64_t number, Effects& effects) {
  if (--followings_.at(number).open > 0) return;
  const Following following = std::move(followings_.extract(number).mapped());
  if (following.failure)
    following.over(tl::unexpected(*following.failure), effects);
  else
    following.over(following.dropped, effects);
}

}  // namespace offpath::pool

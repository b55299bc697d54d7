// Drops that follow rows on their way.
//
// A drop is asked of all members. One that has sent a row to its new owner may be asked before that one has it, or
// after, when the new owner was asked before it came: either way nobody had it to drop. So who sends a row, or has sent
// it within the time that a drop takes, asks its new owners to drop it too, once they have it, and answers the drop
// only then: what is put after that is not touched.
#include <algorithm>
#include <utility>

#include "pool/directory/glob.h"
#include "pool/members/pools.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/replies.h"

namespace offpath::pool {

using service::AskedMemory;
using wire::EntryKind;

// After a move has ended, whatever came of it: its answer may be lost.
void Pools::remember_move(const Put& put) {
  while (!sent_.empty() && sent_.front().at <= context_.now - context_.options.ask_wait_ns) sent_.pop_front();
  sent_.push_back({context_.now, put.place.pool, {put.place.row_key, put.place.column_key}, put.owners});
}

// `over` is told how many rows new owners had when all have dropped theirs: there and then, if none is on its way.
void Pools::follow_rows(const std::string& pool, uid_t user, std::string_view row_glob, std::string_view column_glob,
                        Followed over, Effects& effects) {
  const auto is_meant = [&](const std::string& of, const std::string& row, const std::string& column) {
    return of == pool && glob_matches(row_glob, row) && glob_matches(column_glob, column);
  };
  const std::uint64_t number = context_.numbers.take();
  Following& following = followings_.emplace(number, Following{.user = user, .over = std::move(over)}).first->second;
  ++following.open;  // this call
  std::vector<Sent> sent;
  std::erase_if(sent_, [&](Sent& each) {  // each is followed once: two members that sent a row to each other end so
    if (!is_meant(each.pool, each.keys.first, each.keys.second)) return false;
    if (each.at > context_.now - context_.options.ask_wait_ns) sent.push_back(std::move(each));
    return true;
  });
  for (const std::uint64_t move : moving_) {
    Put& put = puts_.at(move);
    if (!is_meant(put.place.pool, put.place.row_key, put.place.column_key)) continue;
    put.followed_by.push_back(number);
    ++following.open;
  }
  for (const Sent& each : sent) drop_at(number, each.pool, each.keys, each.owners, effects);
  end_following(number, effects);
}

void Pools::drop_at(std::uint64_t number, const std::string& pool, const FrameTable::Keys& keys,
                    const std::vector<std::string>& owners, Effects& effects) {
  Following& following = followings_.at(number);
  for (const std::string& owner : owners) {
    if (owner == context_.directory.self() || !context_.directory.is_alive(owner)) continue;
    ++following.open;
    context_.requests.ask(
        {Asking::Kind::follow, number, owner}, EntryKind::peer_drop,
        deadline_after(context_.now, context_.options.ask_wait_ns), nullptr, 0,
        [user = std::uint64_t{following.user}, text = context_.directory.text_of(pool), row = literal_glob(keys.first),
         column = literal_glob(keys.second)](const AskedMemory&, std::vector<std::byte>& payload) {
          wire::encode(wire::PeerDrop{user, text, row, column}, payload);
        },
        effects);
  }
}

void Pools::on_followed(std::uint64_t number, const Result<Answer>& answer, Effects& effects) {
  const auto at = followings_.find(number);
  if (at == followings_.end()) return;
  wire::Done done{};
  if (answer && wire::decode(answer->payload, done))
    at->second.dropped += done.value;
  else if (!answer && answer.error().code != Error::not_found && !at->second.failure)
    at->second.failure = answer.error();
  end_following(number, effects);
}

void Pools::end_following(std::uint64_t number, Effects& effects) {
  if (--followings_.at(number).open > 0) return;
  const Following following = std::move(followings_.extract(number).mapped());
  if (following.failure)
    following.over(tl::unexpected(*following.failure), effects);
  else
    following.over(following.dropped, effects);
}

}  // namespace offpath::pool

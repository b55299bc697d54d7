// Computations of programs: done here, or asked of the row's owner as gets are (pools_get.cc).
#include <utility>

#include "pool/members/pools.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/pool_messages.h"

namespace offpath::pool {

using service::AskedMemory;
using wire::EntryKind;

namespace {

template <class Message>
ComputationPtr computation_of(const Message& asked) {
  return std::make_shared<const Computation>(Computation{std::string(asked.plugin),
                                                         std::string(asked.function),
                                                         {asked.arguments.begin(), asked.arguments.end()},
                                                         asked.stores,
                                                         std::string(asked.result_row),
                                                         std::string(asked.result_column)});
}

template <class Message>
std::uint64_t bytes_beside_keys(const Message& asked) {
  return asked.arguments.size() + asked.result_row.size() + asked.result_column.size();
}

}  // namespace

void Pools::serve_computes(Computes& computes) {
  computes_ = &computes;
  context_.table.shown = [this](const std::string& pool, const FrameTable::Keys& keys, const FramePtr& frame) {
    bool first = !versions_.takes_moved();
    if (const Definition* const known = context_.directory.known(pool);
        first && known != nullptr && context_.directory.is_elsewhere(*known)) {
      const std::vector<std::string> all = Directory::owners(*known, keys.first);
      first = !all.empty() && all.front() == context_.directory.self();
    }
    computes_->on_shown(pool, keys, frame, first);
  };
}

void Pools::compute(ChannelNumber channel, const channel::Entry& request, bool local, TimeNs now, Effects& effects) {
  wire::PoolCompute asked{};
  if (auto status = wire::decode(request.payload, asked); !status)
    return PoolContext::refuse(channel, request.ticket, std::move(status).error(), effects);
  FrameTable::Get get{.channel = channel,
                      .ticket = request.ticket,
                      .user = channels_.at(channel),
                      .pool = std::string(asked.pool.substr(0, asked.pool.find('?'))),
                      .keys = {std::string(asked.row_key), std::string(asked.column_key)},
                      .wait_ns = asked.wait_ns,
                      .deadline = deadline_after(now, asked.wait_ns)};
  if (computes_ == nullptr)
    return PoolContext::refuse(channel, request.ticket, {Error::unsupported, "this agent computes nothing"}, effects);
  if (Status may = context_.table.charge(get, bytes_beside_keys(asked)); !may)
    return PoolContext::refuse(channel, request.ticket, std::move(may).error(), effects);
  if (local) return computes_->begin(std::move(get), computation_of(asked), now, effects);
  RemoteGet remote;
  remote.get = std::move(get);
  remote.computation = computation_of(asked);
  remote.last = {Error::not_found, fmt::format("there is no pool \"{}\"", remote.get.pool)};
  const std::uint64_t number = context_.numbers.take();
  gets_.add(number, std::move(remote));
  ask_next(number, now, effects);
}

// The owner waits for the objects; how long the function may take only it knows, unless the program said so.
std::uint64_t Pools::ask_compute(std::uint64_t number, const RemoteGet& remote, const std::string& owner,
                                 std::int64_t wait_ns, std::uint32_t inbox_bytes, Effects& effects) {
  const TimeNs deadline = wait_ns == 0 ? never : deadline_after(remote.get.deadline, context_.options.ask_wait_ns);
  Asking asking{Asking::Kind::get, number, owner};
  asking.charge = remote.get.charge;
  return context_.requests.ask(
      std::move(asking), EntryKind::peer_compute, deadline, nullptr, inbox_bytes,
      [user = std::uint64_t{remote.get.user}, owner = std::uint64_t{context_.table.user_of(remote.get.pool)}, wait_ns,
       number, reader = context_.directory.self(), text = context_.directory.text_of(remote.get.pool),
       keys = remote.get.keys, what = remote.computation](const AskedMemory& memory, std::vector<std::byte>& payload) {
        wire::encode(wire::PeerCompute{user, owner, wait_ns, number, memory.inbox, reader, text, keys.first,
                                       keys.second, what->stores, what->plugin, what->function, what->result_row,
                                       what->result_column, what->arguments},
                     payload);
      },
      effects);
}

Status Pools::serve_compute(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  wire::PeerCompute asked{};
  OFP_TRY(wire::decode(request.payload, asked));
  OFP_TRY(check_not_reserved(asked.pool));
  OFP_TRY(check_not_local(asked.pool));
  if (computes_ == nullptr) return fail(Error::unsupported, "this agent computes nothing");
  OFP_ASSIGN(
      const Definition* const definition,
      context_.directory.define_of_member(asked.pool, asked.owner, asked.user, Access::read, context_.now, effects));
  FrameTable::Get get{.channel = channel,
                      .ticket = request.ticket,
                      .user = static_cast<uid_t>(asked.user),
                      .pool = definition->name.name,
                      .keys = {std::string(asked.row_key), std::string(asked.column_key)},
                      .of_member = true,
                      .inbox = asked.inbox,
                      .reader = std::string(asked.reader),
                      .delivery = asked.delivery,
                      .wait_ns = asked.wait_ns,
                      .deadline = deadline_after(now, asked.wait_ns)};
  OFP_TRY(context_.table.charge(get, bytes_beside_keys(asked)));
  computes_->begin(std::move(get), computation_of(asked), now, effects);
  return {};
}

// A function that failed is not called once more: what it does at another owner would be the same, or happen twice.
// Asked again is only what nobody has answered, or what lies elsewhere.
bool Pools::may_compute_elsewhere(const RemoteGet& remote, Error said) noexcept {
  switch (said) {
    case Error::peer_lost:
    case Error::closed:
      return true;
    case Error::not_found:
      return remote.get.wait_ns == 0;
    default:
      return false;
  }
}

}  // namespace offpath::pool

#include "exchange/exchange.h"

#include <algorithm>
#include <utility>

namespace offpath::exchange {

Status check(const ExchangeOptions& options) {
  if (options.name.empty() || options.name.size() > name_bytes_max)
    return fail(Error::invalid, "the name of an exchange has {} characters, 1 to {} are allowed", options.name.size(),
                name_bytes_max);
  if (options.deadline_ns <= 0)
    return fail(Error::invalid, "exchange {}: a deadline of {} ns", options.name, options.deadline_ns);
  if (options.interval_ns != 0 && options.deadline_ns > options.interval_ns)
    return fail(Error::invalid, "exchange {}: the deadline, {} ns, is longer than the interval, {} ns", options.name,
                options.deadline_ns, options.interval_ns);
  if (options.record_bytes > record_bytes_max)
    return fail(Error::too_large, "exchange {}: records of {} bytes, at most {} are allowed", options.name,
                options.record_bytes, record_bytes_max);
  if (options.reductions.size() > reductions_max)
    return fail(Error::too_large, "exchange {}: {} reductions, at most {} are allowed", options.name,
                options.reductions.size(), reductions_max);
  if (!options.reductions.empty() && !options.schema)
    return fail(Error::invalid, "exchange {}: reductions need a schema", options.name);
  if (!options.entries && options.reductions.empty())
    return fail(Error::invalid, "exchange {}: neither records nor reductions travel", options.name);
  if (options.grants && (options.grants->lease_ns <= 0 || options.grants->ttl_ns <= 0))
    return fail(Error::invalid, "exchange {}: grants need positive times", options.name);
  return {};
}

// Where no groups are below the root, each grant travels directly.
std::string warning_of_grants(const ExchangeOptions& options, const Topology& topology) {
  constexpr TimeNs intervals_min = 5;
  const TimeNs least = intervals_min * options.interval_ns;
  const bool has_groups = std::ranges::any_of(topology.order(), [&](MemberIndex member) {
    const NodeIndex leaf = topology.leaf(member);
    return leaf != topology.root() && topology.node(leaf).parent != topology.root();
  });
  if (!options.grants || !has_groups || std::min(options.grants->lease_ns, options.grants->ttl_ns) >= least) return {};
  return fmt::format(
      "exchange {}: grants of a member that leads no group of the tree travel one round longer, and may lapse: set "
      "exchange.grant_ttl and exchange.grant_lease to {:g} ms (five intervals) or more",
      options.name, static_cast<double>(least) / millisecond_ns);
}

namespace {

constexpr TimeNs age_ns_max = 1'000'000 * second_ns;  // older records are useless, and numbers stay small

constexpr std::size_t probes_max = 32;

std::vector<std::uint32_t> ranks_of(const Topology& topology) {
  std::vector<std::uint32_t> ranks(topology.size());
  for (MemberIndex member = 0; member < topology.size(); ++member) ranks[member] = topology.position(member);
  return ranks;
}

}  // namespace

Exchange::Exchange(ExchangeOptions options, Topology topology, MemberIndex self, std::uint64_t nonce, TimeNs now,
                   std::uint64_t epoch)
    : options_(std::move(options)),
      shared_topology_(std::make_shared<const Topology>(std::move(topology))),
      topology_(*shared_topology_),
      self_(self),
      tag_(tag_of(options_.name)),
      peers_(topology_.size()),
      parts_(topology_.nodes().size()),
      epoch_(epoch),
      leader_(topology_.order().front()) {
  OFP_ASSERT(self < topology_.size() && offpath::exchange::check(options_));
  waits_for_down_ = options_.views_to_all || options_.grants.has_value();
  const std::uint32_t levels = topology_.node(topology_.root()).level;
  across_slots_ = topology_.sends_across() ? 1 : 0;
  slots_ = levels == 0 ? 1 : (waits_for_down_ ? 2 * levels - 1 : levels) + across_slots_;
  if (options_.grants) grants_.emplace(*options_.grants, self, ranks_of(topology_), nonce, now);
  next_at_ = options_.interval_ns == 0 ? never : now;
}

// ---- leaders

MemberIndex Exchange::leader_of(NodeIndex node) const {
  return topology_.leader(node, [this](MemberIndex member) { return member == self_ || is_up(member); });
}

// A member that recently spoke for a node knows its leader better than a member that counts from outside.
MemberIndex Exchange::speaker_of(NodeIndex node) const {
  const Part& part = parts_[node];
  const bool lately =
      part.speaker != nobody && is_up(part.speaker) && rounds_ - part.speaker_round <= options_.silent_rounds;
  return lately ? part.speaker : leader_of(node);
}

MemberIndex Exchange::choose_leader(TimeNs now) const {
  MemberIndex leader = leader_of(topology_.root());
  Deciding most = Deciding::no;
  for (const MemberIndex member : topology_.order()) {
    if (!grants_ || most == Deciding::granting) break;
    const Deciding deciding = member == self_ || is_up(member) ? grants_->deciding(member, now) : Deciding::no;
    if (deciding <= most) continue;
    most = deciding;
    leader = member;
  }
  return leader;
}

// Whether the leader that this member votes for is one of the node's members.
bool Exchange::has_granting_leader(NodeIndex node) const {
  return grants_ && grants_->leader() != nobody && topology_.contains(node, grants_->leader());
}

std::uint32_t Exchange::depth_of(NodeIndex node) const noexcept {
  std::uint32_t depth = 0;
  for (; topology_.node(node).parent != nobody; node = topology_.node(node).parent) ++depth;
  return depth;
}

TimeNs Exchange::slot(std::uint32_t number) const noexcept {
  return began_at_ + options_.deadline_ns / slots_ * std::min(number, slots_) +
         (number >= slots_ ? options_.deadline_ns % slots_ : 0);
}

// ---- rounds

void Exchange::begin(TimeNs now, ExchangeEffects& effects) {
  if (open_) {
    early_.clear();
    close(now, effects);
  }
  start(epoch_ + 1, now, now, effects);
  advance(now, effects);
}

void Exchange::on_time(TimeNs now, ExchangeEffects& effects) {
  if (open_) advance(now, effects);
  if (now >= next_at_ && (!open_ || began_at_ != now)) begin(now, effects);
}

TimeNs Exchange::next_deadline() const noexcept { return open_ ? std::min(phase_deadline(), next_at_) : next_at_; }

TimeNs Exchange::phase_deadline() const noexcept {
  const std::uint32_t levels = topology_.node(topology_.root()).level;
  switch (phase_) {
    case Phase::local:
      return slot(1);
    case Phase::up:
      return slot(topology_.node(at_).level + 1);
    case Phase::across:
      return slot(levels + across_slots_);
    case Phase::down:
      return slot(levels + across_slots_ + depth_of(at_) - 1);
  }
  return never;
}

void Exchange::start(std::uint64_t epoch, TimeNs began_at, TimeNs now, ExchangeEffects& effects) {
  epoch_ = epoch;
  ++rounds_;
  ++counters_.rounds;
  open_ = true;
  phase_ = Phase::local;
  at_ = topology_.leaf(self_);
  local_there_ = whole_there_ = whole_ = false;
  began_at_ = began_at;
  next_at_ = options_.interval_ns == 0 ? never : std::max(began_at + options_.interval_ns, now);
  effects.wants_local = true;
  judge(now, effects);
  if (grants_) grants_->on_round(leader_ == self_, now);
  for (auto& [from, bytes] : std::exchange(early_, {})) {
    auto parcel = Parcel::open(std::move(bytes));  // it was checked on arrival
    if (parcel && parcel->header().epoch == epoch_) take(*parcel, now);
  }
}

void Exchange::on_local(const Record& record, TimeNs age_ns, TimeNs now, ExchangeEffects& effects) {
  if (record.owner && record.bytes.size() <= options_.record_bytes) own_newest_ = {record, now - age_ns};
  if (!open_ || phase_ != Phase::local) return;
  local_there_ = true;
  advance(now, effects);
}

// The own record of this round. A later record belongs to the next round: the views and figures of others do not wait
// for it.
void Exchange::say_own_record(TimeNs now) {
  Peer& own = peers_[self_];
  own.epoch = epoch_;
  own.has_value = own_newest_.has_value();
  if (own.has_value) {
    own.record = own_newest_->record;
    own.source_at = own_newest_->made_at;
  } else {
    ++counters_.without_value;
    own.source_at = now;
  }
}

void Exchange::advance(TimeNs now, ExchangeEffects& effects) {
  while (step(now, effects)) {
  }
}

// Takes one step, if possible now.
bool Exchange::step(TimeNs now, ExchangeEffects& effects) {
  if (!open_) return false;
  const bool over = now >= phase_deadline();
  switch (phase_) {
    case Phase::local: {
      if (!local_there_ && !over) return false;
      say_own_record(now);
      leave_node(now, effects);
      return true;
    }
    case Phase::up:
      if (!parts_are_there(at_) && !over) return false;
      note_missing(at_);
      leave_node(now, effects);
      return true;
    case Phase::across:
      if (!parts_are_there(topology_.root()) && !over) return false;
      note_missing(topology_.root());
      reduce_own_part(topology_.root());
      whole_ = true;
      close(now, effects);
      return true;
    case Phase::down:
      if (!whole_there_ && !over) return false;
      close(now, effects);
      return true;
  }
  return false;
}

// Parts that were silent for too long, or without a live member, are not waited for.
bool Exchange::parts_are_there(NodeIndex node) const {
  for (const NodeIndex child : topology_.node(node).children) {
    const Part& part = parts_[child];
    if (part.epoch >= epoch_ || part.missed >= options_.missed_rounds || topology_.contains(child, self_)) continue;
    if (leader_of(child) != nobody) return false;
  }
  return true;
}

void Exchange::note_missing(NodeIndex node) {
  for (const NodeIndex child : topology_.node(node).children)
    if (parts_[child].epoch < epoch_ && !topology_.contains(child, self_)) ++parts_[child].missed;
}

// All expected parts of `at_` have arrived: go up a level, or send to the leader there.
void Exchange::leave_node(TimeNs now, ExchangeEffects& effects) {
  reduce_own_part(at_);
  const NodeIndex parent = topology_.node(at_).parent;
  if (parent == nobody) {
    whole_ = true;
    return close(now, effects);
  }
  const bool at_top = parent == topology_.root();
  if (!at_top && leads(parent)) {
    at_ = parent;
    phase_ = Phase::up;
    return;
  }
  const Node& node = topology_.node(at_);
  if (at_top && grants_) grants_->issue(now);
  ParcelWriter& writer = writer_;
  writer.begin(header(at_top ? ParcelKind::across : ParcelKind::up, at_, now));
  add_entries(writer, node.first, node.last, &Peer::sent_up, now);
  add_partial(writer, at_);
  add_ballots(writer, node.first, node.last);
  if (has_granting_leader(at_)) {
    add_grants(writer, 0, node.first);
    add_grants(writer, node.last, static_cast<std::uint32_t>(topology_.size()));
  }
  const SharedBytes parcel = writer.finish();
  note_sent(node.first, node.last, &Peer::sent_up);
  if (at_top) {
    phase_ = Phase::across;
    for (const NodeIndex child : topology_.node(parent).children)
      if (child != at_) send(speaker_of(child), parcel, effects);
    return;
  }
  send(leader_of(parent), parcel, effects);
  phase_ = Phase::down;
  if (!waits_for_down_) close(now, effects);
}

void Exchange::close(TimeNs now, ExchangeEffects& effects) {
  const TimeNs took = now - began_at_;
  counters_.round_ns = took;
  counters_.round_ns_max = std::max(counters_.round_ns_max, took);
  counters_.overrun_ns_max = std::max(counters_.overrun_ns_max, took - options_.deadline_ns);
  if (const NodeIndex parent = topology_.node(at_).parent; parent == nobody || parent == topology_.root())
    leader_ = choose_leader(now);
  if (grants_) grants_->issue(now);
  ViewPtr view = make_view(now);
  ++(view->present == view->expected ? counters_.complete : counters_.partial);
  effects.views.push_back(std::move(view));
  send_down(now, effects);
  open_ = false;
  if (!early_.empty()) {
    ++counters_.followed;
    start(epoch_ + 1, now, now, effects);
  }
}

// Sends missing data, or the message that it is complete, to the parts of every node that this member leads.
void Exchange::send_down(TimeNs now, ExchangeEffects& effects) {
  if (at_ == topology_.leaf(self_)) return;
  const NodeIndex known = whole_ ? topology_.root() : at_;
  const auto all = static_cast<std::uint32_t>(topology_.size());
  for (NodeIndex node = at_; topology_.node(node).member == nobody;) {
    NodeIndex own = nobody;
    for (const NodeIndex child : topology_.node(node).children) {
      if (topology_.contains(child, self_)) {
        own = child;
        continue;
      }
      const MemberIndex to = speaker_of(child);
      if (to == nobody) continue;
      const Node& part = topology_.node(child);
      ParcelWriter& writer = writer_;
      writer.begin(header(ParcelKind::down, known, now));
      const bool has_leader = has_granting_leader(child);
      if (options_.views_to_all || has_leader) {
        add_entries(writer, 0, part.first, &Peer::sent_down, now);
        add_entries(writer, part.last, all, &Peer::sent_down, now);
        add_partial(writer, known);
      }
      if (has_leader) {
        add_ballots(writer, 0, part.first);
        add_ballots(writer, part.last, all);
      }
      add_grants(writer, part.first, part.last);
      send(to, writer.finish(), effects);
    }
    node = own;
  }
  note_sent(0, all, &Peer::sent_down);
}

// ---- expected members

void Exchange::judge(TimeNs now, ExchangeEffects& effects) {
  NodeIndex node = topology_.leaf(self_);
  while (topology_.node(node).parent != nobody && topology_.node(node).parent != topology_.root() &&
         leads(topology_.node(node).parent))
    node = topology_.node(node).parent;
  const NodeIndex parent = topology_.node(node).parent;
  if (parent == topology_.root()) {
    for (const NodeIndex child : topology_.node(parent).children)
      if (child != node) expect_to_hear(speaker_of(child));
  } else if (parent != nobody) {
    expect_to_hear(leader_of(parent));
  }
  if (rounds_ % options_.probe_rounds == 0) probe(now, effects);
}

// The leader's message, sent with every round. The first round in which it is expected does not count.
void Exchange::expect_to_hear(MemberIndex member) {
  if (member == nobody || member == self_) return;
  Peer& peer = peers_[member];
  if (peer.expected_round + 1 < rounds_) peer.heard_round = std::max(peer.heard_round, rounds_);
  peer.expected_round = rounds_;
  if (rounds_ - peer.heard_round <= options_.silent_rounds) return;
  peer.silent = true;
  ++counters_.replaced;
}

// Asks members that were passed over, a few at a time: after a partition they may be all of its other side.
void Exchange::probe(TimeNs now, ExchangeEffects& effects) {
  ParcelWriter& writer = writer_;
  writer.begin(header(ParcelKind::probe, topology_.leaf(self_), now));
  SharedBytes parcel;
  std::size_t asked = 0;
  for (std::size_t i = 0; i < peers_.size() && asked < probes_max; ++i) {
    probed_ = static_cast<MemberIndex>((probed_ + 1) % peers_.size());
    if (!peers_[probed_].silent || peers_[probed_].dead || probed_ == self_) continue;
    if (!parcel) parcel = writer.finish();
    send(probed_, parcel, effects);
    ++asked;
  }
}

void Exchange::on_member(MemberIndex member, bool is_up, TimeNs) {
  Peer& peer = peers_[member];
  peer.dead = !is_up;
  if (!is_up) return;
  peer.silent = false;
  peer.heard_round = rounds_;
}

void Exchange::hear(const ParcelHeader& header) {
  peers_[header.from].silent = false;
  peers_[header.from].heard_round = rounds_;
}

// ---- sending

ParcelHeader Exchange::header(ParcelKind kind, NodeIndex node, TimeNs now) const {
  ParcelHeader header{};
  header.kind = kind;
  header.tag = tag_;
  header.fingerprint = topology_.fingerprint();
  header.epoch = epoch_;
  header.round_age_ns = std::max<TimeNs>(now - began_at_, 0);
  header.from = self_;
  header.node = node;
  header.leader = leader_;
  header.grant_leader = nobody;
  if (grants_) {
    const Grants::Beat beat = grants_->beat();
    header.grant_leader = beat.leader;
    header.grant_nonce = beat.nonce;
    header.grant_beat = beat.beat;
  }
  return header;
}

void Exchange::send(MemberIndex to, const SharedBytes& parcel, ExchangeEffects& effects) {
  if (to == nobody || to == self_) return;
  ++counters_.parcels_out;
  counters_.bytes_out += parcel->size();
  effects.sends.push_back({to, parcel, began_at_ + std::max(options_.deadline_ns, options_.interval_ns)});
}

void Exchange::add_entries(ParcelWriter& writer, std::uint32_t first, std::uint32_t last, std::uint64_t Peer::* sent,
                           TimeNs now) const {
  if (!options_.entries) return;
  for (std::uint32_t at = first; at < last; ++at) {
    const MemberIndex member = topology_.order()[at];
    const Peer& peer = peers_[member];
    if (peer.epoch <= peer.*sent) continue;
    const auto length = peer.has_value ? static_cast<std::uint32_t>(peer.record.bytes.size()) : no_value;
    writer.add_entry({member, length, peer.epoch, std::max<TimeNs>(now - peer.source_at, 0)},
                     peer.has_value ? peer.record : Record{});
  }
}

void Exchange::note_sent(std::uint32_t first, std::uint32_t last, std::uint64_t Peer::* sent) {
  for (std::uint32_t at = first; at < last; ++at) {
    Peer& peer = peers_[topology_.order()[at]];
    peer.*sent = peer.epoch;
  }
}

// The combined parts of a node that has all of them.
void Exchange::reduce_own_part(NodeIndex index) {
  if (options_.reductions.empty()) return;
  Part& part = parts_[index];
  part.partial.reset(options_.reductions);
  part.partial_epoch = epoch_;
  if (topology_.node(index).member != nobody) {
    const Peer& own = peers_[self_];
    if (own.has_value && check_record(own.record.bytes, *options_.schema))
      part.partial.add(self_, own.record.bytes, options_.reductions, options_.schema->fields.size());
    else
      part.partial.count_member();
    return;
  }
  for (const NodeIndex child : topology_.node(index).children)
    if (parts_[child].partial_epoch == epoch_) part.partial.merge(parts_[child].partial, options_.reductions);
}

void Exchange::add_partial(ParcelWriter& writer, NodeIndex node) {
  if (options_.reductions.empty() || parts_[node].partial_epoch != epoch_) return;
  scratch_.clear();
  parts_[node].partial.encode(scratch_);
  writer.add_partial(node, epoch_, scratch_);
}

void Exchange::add_ballots(ParcelWriter& writer, std::uint32_t first, std::uint32_t last) const {
  if (!grants_) return;
  for (std::uint32_t at = first; at < last; ++at) {
    const MemberIndex member = topology_.order()[at];
    if (member == self_)
      writer.add_ballot(grants_->ballot());
    else if (const Ballot* ballot = grants_->ballot_of(member))
      writer.add_ballot(*ballot);
  }
}

void Exchange::add_grants(ParcelWriter& writer, std::uint32_t first, std::uint32_t last) const {
  if (!grants_) return;
  for (std::uint32_t at = first; at < last; ++at)
    if (const Grant* grant = grants_->grant_of(topology_.order()[at])) writer.add_grant(*grant);
}

// ---- receiving

Status Exchange::check(const Parcel& parcel) const {
  const ParcelHeader& header = parcel.header();
  const std::size_t members = topology_.size();
  if (header.tag != tag_) return fail(Error::protocol, "a parcel of another exchange than {}", options_.name);
  if (header.fingerprint != topology_.fingerprint())
    return fail(Error::stale,
                "a parcel of exchange {} with another tree: its sender has other members, or another configuration",
                options_.name);
  if (header.from >= members || header.from == self_)
    return fail(Error::protocol, "a parcel of member {} of {}", header.from, members);
  if (header.node >= topology_.nodes().size() || !topology_.contains(header.node, header.from))
    return fail(Error::protocol, "a parcel of node {}, for which member {} cannot speak", header.node, header.from);
  if (header.epoch > UINT64_MAX / 2) return fail(Error::protocol, "a parcel of epoch {}", header.epoch);
  for (std::uint32_t i = 0; i < header.entries; ++i) {
    const EntryRow row = parcel.entry(i);
    if (row.member >= members || row.epoch > header.epoch ||
        (row.length != no_value && row.length > options_.record_bytes))
      return fail(Error::protocol, "a parcel of epoch {} has a record of {} bytes of member {}, of epoch {}",
                  header.epoch, row.length, row.member, row.epoch);
  }
  for (std::uint32_t i = 0; i < header.ballots; ++i) {
    const Ballot ballot = parcel.ballot(i);
    if (ballot.member >= members || ballot.deciding > Deciding::granting)
      return fail(Error::protocol, "a parcel has ballot {} of member {}", static_cast<unsigned>(ballot.deciding),
                  ballot.member);
  }
  Status status;
  parcel.each_partial([&](const PartialRow& row, Bytes bytes) {
    if (!status) return;
    if (row.node >= topology_.nodes().size())
      status = fail(Error::protocol, "a parcel has reductions of node {}", row.node);
    else if (auto reduced = Reduced::decode(bytes, options_.reductions); !reduced)
      status = tl::unexpected(reduced.error());
    else if (const Node& node = topology_.node(row.node); reduced->members() > node.last - node.first)
      status = fail(Error::protocol, "a parcel has reductions of {} members of node {}", reduced->members(), row.node);
  });
  return status;
}

Status Exchange::on_parcel(const SharedBytes& bytes, TimeNs now, ExchangeEffects& effects) {
  ++counters_.parcels_in;
  counters_.bytes_in += bytes->size();
  auto opened = Parcel::open(bytes);
  Status checked = opened ? check(*opened) : tl::unexpected(opened.error());
  if (!checked) {
    ++counters_.refused;
    return checked;
  }
  const ParcelHeader header = opened->header();
  hear(header);
  if (header.kind == ParcelKind::probe) {
    ParcelWriter& writer = writer_;
    writer.begin(this->header(ParcelKind::alive, topology_.leaf(self_), now));
    send(header.from, writer.finish(), effects);
  }
  if (header.kind == ParcelKind::probe || header.kind == ParcelKind::alive) return {};
  if (header.epoch > epoch_) {
    if (open_ && header.epoch == epoch_ + 1) {
      early_.insert_or_assign(header.from, bytes);
      return {};
    }
    early_.clear();
    if (open_) close(now, effects);
    ++counters_.followed;
    start(header.epoch, now - std::min(header.round_age_ns, options_.deadline_ns), now, effects);
  }
  take(*opened, now);
  advance(now, effects);
  return {};
}

void Exchange::take(const Parcel& parcel, TimeNs now) {
  const ParcelHeader& header = parcel.header();
  const bool is_current = header.epoch == epoch_;
  if (is_current && options_.interval_ns != 0)  // the sender's round began earlier, so the next one will too
    next_at_ = std::max(
        std::min(next_at_, now - std::min(header.round_age_ns, options_.interval_ns) + options_.interval_ns), now);
  if (header.kind == ParcelKind::down) {
    if (header.epoch >= epoch_ && header.leader < topology_.size()) leader_ = header.leader;
    if (is_current && open_) {
      whole_there_ = true;
      whole_ |= (options_.views_to_all || has_granting_leader(at_)) && header.node == topology_.root();
    } else if (waits_for_down_) {
      ++counters_.late;
    }
  } else {
    Part& part = parts_[header.node];
    part.epoch = std::max(part.epoch, header.epoch);
    part.missed = 0;
    part.speaker = header.from;
    part.speaker_round = rounds_;
    if (!is_current || !open_) ++counters_.late;
  }
  take_entries(parcel, now);
  take_partials(parcel);
  take_grants(parcel, now);
}

void Exchange::take_entries(const Parcel& parcel, TimeNs now) {
  parcel.each_entry([&](const EntryRow& row, const Record& record) {
    Peer& peer = peers_[row.member];
    if (row.member == self_ || row.epoch <= peer.epoch) return;
    peer.epoch = row.epoch;
    peer.source_at = now - std::min(row.age_ns, age_ns_max);
    peer.has_value = row.length != no_value;
    peer.record = peer.has_value ? record : Record{};
  });
}

// For this round only: figures of different rounds are not added.
void Exchange::take_partials(const Parcel& parcel) {
  parcel.each_partial([&](const PartialRow& row, Bytes bytes) {
    Part& part = parts_[row.node];
    if (row.epoch != epoch_ || (topology_.contains(row.node, self_) && parcel.header().kind != ParcelKind::down))
      return;
    auto reduced = Reduced::decode(bytes, options_.reductions);
    if (part.partial_epoch == epoch_ && part.partial.members() >= reduced->members()) return;
    part.partial = std::move(*reduced);
    part.partial_epoch = epoch_;
  });
}

void Exchange::take_grants(const Parcel& parcel, TimeNs now) {
  if (!grants_) return;
  const ParcelHeader& header = parcel.header();
  if (header.grant_leader < topology_.size())
    grants_->on_beat(header.grant_leader, header.grant_nonce, header.grant_beat, now);
  for (std::uint32_t i = 0; i < header.ballots; ++i) grants_->on_ballot(parcel.ballot(i), now);
  for (std::uint32_t i = 0; i < header.grants; ++i)
    grants_->on_grant(header.grant_leader, header.grant_nonce, parcel.grant(i), now);
}

// ---- views

ViewPtr Exchange::make_view(TimeNs now) const {
  auto view = std::make_shared<View>();
  view->epoch = epoch_;
  view->began_at = began_at_;
  view->given_at = now;
  view->whole = whole_;
  view->leader = grants_ && grants_->leader() != nobody ? grants_->leader() : leader_;
  const bool all = whole_ || options_.views_to_all;
  const Node& node = topology_.node(all ? topology_.root() : at_);
  view->expected = node.last - node.first;
  if (!options_.reductions.empty()) {
    // The figures of most members: of all, or of the largest known part of the tree.
    const Reduced* best = nullptr;
    for (NodeIndex index = topology_.leaf(self_); index != nobody; index = topology_.node(index).parent) {
      const Part& part = parts_[index];
      if (part.partial_epoch == epoch_ && (best == nullptr || part.partial.members() >= best->members()))
        best = &part.partial;
    }
    if (best != nullptr) {
      view->reduced = std::make_shared<const Reduced>(*best);
      view->reduced_members = best->members();
    }
  }
  if (!options_.entries) {
    view->present = view->reduced_members;
    return view;
  }
  view->entries.reserve(view->expected);
  for (MemberIndex member = 0; member < peers_.size(); ++member) {
    if (!all && !topology_.contains(at_, member)) continue;
    const Peer& peer = peers_[member];
    const bool present = peer.epoch == epoch_;
    view->present += present ? 1 : 0;
    TimeNs age = peer.epoch == 0 ? 0 : std::max<TimeNs>(now - peer.source_at, 0);
    // A parcel may have been delayed for an unknown time; its epoch shows it.
    if (peer.epoch != 0 && !present)
      age = std::max(
          age, static_cast<TimeNs>(std::min<std::uint64_t>(epoch_ - peer.epoch - 1, 1u << 20)) * options_.interval_ns);
    view->entries.push_back({member, present, peer.has_value, peer.epoch, age, peer.record});
  }
  return view;
}

}  // namespace offpath::exchange

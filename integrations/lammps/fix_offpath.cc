// SPDX-License-Identifier: GPL-2.0-only
#include "fix_offpath.h"

#include <mpi.h>

#include <algorithm>
#include <cstring>

#include "atom.h"
#include "call_order.h"
#include "comm.h"
#include "connection.h"
#include "error.h"
#include "group.h"
#include "modify.h"
#include "update.h"
#include "utils.h"

namespace offpath_lammps {

using LAMMPS_NS::bigint;
using std::chrono::nanoseconds;

namespace {

using Clock = std::chrono::steady_clock;

class Added {
 public:
  explicit Added(nanoseconds& to) : to_(to), began_(Clock::now()) {}
  ~Added() { to_ += Clock::now() - began_; }
  Added(const Added&) = delete;
  Added& operator=(const Added&) = delete;

 private:
  nanoseconds& to_;
  Clock::time_point began_;
};

}  // namespace

FixOffpath::FixOffpath(LAMMPS_NS::LAMMPS* lammps, int argc, char** argv)
    : Fix(lammps, argc, argv), wait_(std::chrono::seconds(60)) {
  parse(argc, argv);
  global_freq = 1;
  vector_flag = 1;
  size_vector = 5;
  extvector = 0;
  connect();
}

// The agent may still read the arrays, and they outlive this fix.
FixOffpath::~FixOffpath() {
  if (!connection_) return;
  own_again();
  try {
    if (connection_) connection_->wait_stored(wait_);
  } catch (const offpath::Error& lost) {
    lose(lost.what());
  }
}

void FixOffpath::parse(int argc, char** argv) {
  if (argc < 4) LAMMPS_NS::utils::missing_cmd_args(FLERR, "fix offpath", error);
  nevery = LAMMPS_NS::utils::inumeric(FLERR, argv[3], false, lmp);
  if (nevery <= 0)
    error->all(FLERR, "fix offpath: N is {}, the number of steps from one hand-over to the next", nevery);
  pool_ = std::string("local:/") + id;
  std::vector<std::string> names{"id", "type", "x", "v"};
  const std::vector<std::string> keywords{"pool", "columns", "agent", "snapshot", "keep", "wait", "key"};
  for (int at = 4; at < argc;) {
    const std::string keyword = argv[at];
    if (std::ranges::find(keywords, keyword) == keywords.end())
      error->all(FLERR, "fix offpath: unknown keyword {}; it knows pool, columns, agent, snapshot, keep, wait and key",
                 keyword);
    if (++at == argc) LAMMPS_NS::utils::missing_cmd_args(FLERR, "fix offpath " + keyword, error);
    if (keyword == "columns") {
      names.clear();
      while (at < argc && std::ranges::find(keywords, argv[at]) == keywords.end()) names.emplace_back(argv[at++]);
      if (names.empty()) LAMMPS_NS::utils::missing_cmd_args(FLERR, "fix offpath columns", error);
      continue;
    }
    const char* const value = argv[at++];
    if (keyword == "pool") {
      pool_ = value;
    } else if (keyword == "agent") {
      agent_ = value;
    } else if (keyword == "key") {
      key_ = value;
    } else if (keyword == "snapshot") {
      snapshot_ = LAMMPS_NS::utils::logical(FLERR, value, false, lmp) != 0;
    } else if (keyword == "keep") {
      const bigint keep = LAMMPS_NS::utils::bnumeric(FLERR, value, false, lmp);
      if (keep < 0) error->all(FLERR, "fix offpath: keep is {}, a number of frames; 0 keeps all", keep);
      keep_ = static_cast<std::uint64_t>(keep);
    } else {
      const double seconds = LAMMPS_NS::utils::numeric(FLERR, value, false, lmp);
      if (!(seconds > 0 && seconds < 1e9)) error->all(FLERR, "fix offpath: wait is {}, a number of seconds", value);
      wait_ = std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(seconds));
    }
  }
  try {
    for (const std::string& name : names) columns_.push_back(find_column(*atom, name));
  } catch (const std::invalid_argument& why) {
    error->all(FLERR, "fix offpath: {}", why.what());
  }
  copies_.resize(columns_.size());
}

void FixOffpath::connect() {
  try {
    connection_ = std::make_unique<Connection>(Target{.agent = agent_,
                                                      .pool = pool_,
                                                      .name = "fix " + std::string(id),
                                                      .keep = keep_,
                                                      .ranks = static_cast<std::uint32_t>(comm->nprocs),
                                                      .rank = static_cast<std::uint32_t>(comm->me)},
                                               columns_);
  } catch (const offpath::Error& why) {
    error->one(FLERR, "fix offpath: {}. Start an agent with `offpath agent`, or name one by `agent ADDRESS`",
               why.what());
  }
}

int FixOffpath::setmask() {
  using namespace LAMMPS_NS::FixConst;
  return INITIAL_INTEGRATE | INITIAL_INTEGRATE_RESPA | END_OF_STEP;
}

// As dump does, the state before the first step is handed over if its number is a multiple of N.
void FixOffpath::setup(int) {
  become_first(*modify, this);
  if (update->ntimestep % nevery == 0) hand_over();
}

void FixOffpath::initial_integrate(int) { own_again(); }

void FixOffpath::initial_integrate_respa(int, int, int) { own_again(); }

void FixOffpath::end_of_step() { hand_over(); }

// Commands between runs may change anything.
void FixOffpath::post_run() { own_again(); }

void FixOffpath::hand_over() {
  if (last_step_ == update->ntimestep) return;  // it ended a run, and begins the next one
  last_step_ = update->ntimestep;
  if (!connection_) {
    ++skipped_;
    return;
  }
  own_again();
  if (!connection_) return;
  const Added timed(posting_);
  try {
    std::vector<std::span<const std::byte>> arrays;
    for (const AtomColumn& column : columns_) arrays.push_back(memory_of(*atom, column));
    auto rows = static_cast<std::uint64_t>(atom->nlocal);
    if (igroup != 0) {
      copy_group();
      for (std::size_t at = 0; at < columns_.size(); ++at) arrays[at] = copies_[at];
      rows = copies_.empty() ? 0 : copies_[0].size() / columns_[0].row_bytes;
    }
    // Copies of a group are announced again when their vector has moved.
    const std::uint64_t ticket =
        connection_->post(arrays, rows, key_ + std::to_string(update->ntimestep), snapshot_, wait_);
    std::uint64_t bytes = 0;
    for (const AtomColumn& column : columns_) bytes += rows * column.row_bytes;
    posted_ = {ticket, bytes};
    if (snapshot_) own_again();
  } catch (const offpath::Error& why) {
    ++skipped_;
    lose(why.what());
  } catch (const std::invalid_argument& why) {
    error->one(FLERR, "fix offpath: {}", why.what());
  }
}

void FixOffpath::own_again() {
  if (!posted_) return;
  const Added timed(waiting_);
  try {
    if (!snapshot_) connection_->wait_pulled(posted_->ticket, wait_);
    ++steps_;
    bytes_ += posted_->bytes;
    posted_.reset();
  } catch (const offpath::Error& why) {
    lose(why.what());
  }
}

void FixOffpath::copy_group() {
  for (std::size_t at = 0; at < columns_.size(); ++at) {
    const auto array = memory_of(*atom, columns_[at]);
    const std::size_t row_bytes = columns_[at].row_bytes;
    std::vector<std::byte>& copy = copies_[at];
    copy.clear();
    for (int i = 0; i < atom->nlocal; ++i) {
      if ((atom->mask[i] & groupbit) == 0) continue;
      const auto row = array.subspan(static_cast<std::size_t>(i) * row_bytes, row_bytes);
      copy.insert(copy.end(), row.begin(), row.end());
    }
  }
}

// The other processes' agents may be there.
void FixOffpath::lose(const std::string& why) {
  if (posted_) ++skipped_;
  posted_.reset();
  connection_.reset();
  error->warning(FLERR, "fix offpath {}: step {}: the run continues without the agent: {}", id, update->ntimestep, why);
}

double FixOffpath::compute_vector(int index) {
  const auto seconds = [](nanoseconds time) { return std::chrono::duration<double>(time).count(); };
  const double here[] = {static_cast<double>(steps_), static_cast<double>(bytes_), seconds(posting_), seconds(waiting_),
                         static_cast<double>(skipped_)};
  const MPI_Op over_all[] = {MPI_MIN, MPI_SUM, MPI_MAX, MPI_MAX, MPI_MAX};
  double there = 0;
  MPI_Allreduce(&here[index], &there, 1, MPI_DOUBLE, over_all[index], world);
  return there;
}

double FixOffpath::memory_usage() {
  double bytes = 0;
  for (const auto& copy : copies_) bytes += static_cast<double>(copy.capacity());
  return bytes;
}

}  // namespace offpath_lammps

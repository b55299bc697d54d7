#include "md/simulation.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "md/files/bad_input.h"
#include "md/files/data_file.h"
#include "md/integrate.h"
#include "md/lattice.h"
#include "md/neighbours/displacement.h"
#include "md/ranks/migrate.h"
#include "md/stopwatch.h"
#include "md/velocities.h"

namespace md {
namespace {

constexpr int threads_with_forces_elsewhere = 40;  // three inputs each, of 128 that a task may have

template <class T>
void append(std::vector<std::byte>& bytes, const T& item) {
  const auto more = std::as_bytes(std::span(&item, 1));
  bytes.insert(bytes.end(), more.begin(), more.end());
}

template <class T>
std::vector<T> items_of(const std::vector<std::byte>& bytes) {
  std::vector<T> items(bytes.size() / sizeof(T));
  if (!items.empty()) std::memcpy(items.data(), bytes.data(), items.size() * sizeof(T));
  return items;
}

}  // namespace

Simulation::Simulation(const Settings& settings, Ranks& ranks, std::unique_ptr<Coworker> coworker)
    : settings_(settings),
      ranks_(ranks),
      kernels_(choose_kernels(settings.kernels)),
      forces_(make_forces(settings, kernels_)),
      coworker_(std::move(coworker)),
      balance_(settings.share) {
  chosen_later_ = settings_.offload == Offload::automatic;
  if (settings_.offload != Offload::force && !chosen_later_) settings_.exchange = Exchange::host;
  if (!coworker_ || chosen_later_) settings_.offload = Offload::none;
  next_mode_ = settings_.offload;
  settings_.lists = kind_of_lists(settings);
  const std::string refusal = coworker_ ? why_not(settings.offload, settings) : "";
  if (!refusal.empty()) throw BadInput(refusal);
  if (coworker_ && (chosen_later_ || settings_.offload == Offload::list) && !settings.resume_file.empty()) {
    throw BadInput("--offload list and auto do not resume");
  }
  settings_.cut = forces_->cut();
  tables_ = forces_->tables();
  use_masses(forces_->masses());
  if (!settings_.data_file.empty()) {
    read_data();
  } else if (settings_.resume_file.empty()) {
    create_lattice();
  }
  if (settings_.resume_file.empty())
    make_thermostat();
  else
    resume();
  refuse_combinations();
}

void Simulation::refuse_combinations() const {
  const std::string refusal = coworker_ && !chosen_later_ ? why_not(settings_.offload, settings_) : "";
  if (!refusal.empty()) throw BadInput(refusal);
  if (coworker_ && settings_.offload == Offload::force && settings_.potential == Potential::eam && tables_.empty()) {
    throw BadInput("--offload force computes EAM of one element; for several use --offload list, or auto");
  }
  if (settings_.lj_types > 1 && (settings_.precision == Precision::mixed || settings_.lists == Lists::clusters)) {
    throw BadInput(settings_.data_file + ": several types of atoms are computed with --precision double and --lists " +
                   "pairs only");
  }
}

// One entry if all are the same.
void Simulation::use_masses(std::vector<double> masses) {
  if (std::all_of(masses.begin(), masses.end(), [&](double mass) { return mass == masses[0]; })) masses.resize(1);
  masses_ = std::move(masses);
  half_step_per_mass_.clear();
  for (const double mass : masses_)
    half_step_per_mass_.push_back(0.5 * settings_.time_step / (mass * settings_.units.mvv_to_energy));
}

std::string Simulation::why_not(Offload mode, const Settings& settings) {
  if (mode == Offload::share && settings.lj_types > 1)
    return "--offload share computes one type of atoms; for several use --offload list, or auto";
  if (mode == Offload::share && settings.potential == Potential::eam)
    return "--offload share computes Lennard-Jones, not EAM; use --offload list, whose lists do not depend on the "
           "potential, or auto";
  if (mode != Offload::force) return "";
  if (settings.lj_types > 1) {
    return "--offload force computes one type of atoms; for several use --offload list, whose lists do not depend on "
           "types, or auto";
  }
  if (settings.potential == Potential::eam && settings.exchange != Exchange::agent) {
    return "--offload force computes EAM only with --exchange agent, because ranks exchange between its two loops, "
           "too; or use --offload list, whose lists do not depend on the potential, or auto";
  }
  if (settings.threads > threads_with_forces_elsewhere) {
    return "--offload force supports at most " + std::to_string(threads_with_forces_elsewhere) +
           " threads on each rank, because each thread's lists are separate inputs: use fewer, or --offload list";
  }
  return "";
}

void Simulation::make_grid(const Box& whole) {
  margin_ = list_margin();
  const double list_cut = settings_.cut + settings_.skin + margin_;
  domain_ = make_domain(whole, ranks_.count(), ranks_.rank());
  domain_.safe_exchange = settings_.safe_exchange;
  halo_ = std::make_unique<Halo>(domain_, ranks_, list_cut);
  bins_ = std::make_unique<Bins>(domain_.own, list_cut);
}

void Simulation::create_lattice() {
  make_grid(lattice_box(settings_.cells, settings_.density));
  add_lattice(settings_.cells, settings_.density, settings_.seed, domain_, atoms_);
  double count = static_cast<double>(atoms_.own);
  ranks_.sum({&count, 1});
  atoms_in_all_ = static_cast<std::int64_t>(count);
  set_temperature(settings_.temperature, masses_, settings_.units, atoms_in_all_, atoms_, ranks_);
}

// Rank 0 reads the file, and sends each rank its atoms. A resumed run takes only types and masses from it.
void Simulation::read_data() {
  DataFile data;
  if (ranks_.rank() == 0) data = read_data_file(settings_.data_file);
  share_head(data, ranks_);
  use_data(data);
  if (!settings_.resume_file.empty()) return;
  make_grid(data.box);
  std::vector<std::vector<std::byte>> parts(static_cast<std::size_t>(ranks_.count()));
  const RankOfPosition rank_of(data.box, ranks_.count());
  for (const DataAtom& atom : data.atoms) {
    if (atom.type >= forces_->types()) {
      throw BadInput(
          settings_.data_file + ": atom " + std::to_string(atom.id) + " has type " + std::to_string(atom.type + 1) +
          ", the potential has " + std::to_string(forces_->types()) +
          (settings_.potential == Potential::lj ? " (a section Pair Coeffs or PairIJ Coeffs gives others)" : ""));
    }
    append(parts[static_cast<std::size_t>(rank_of(atom.x))], atom);
  }
  for (const DataAtom& atom : items_of<DataAtom>(ranks_.scatter(parts))) {
    const std::array<double, 3> velocity = data.velocities ? atom.v : seeded_velocity(atom.id, settings_.seed);
    atoms_.add(atom.id, atom.type, atom.x.data(), velocity.data());
  }
  double count = static_cast<double>(atoms_.own);
  ranks_.sum({&count, 1});
  atoms_in_all_ = static_cast<std::int64_t>(count);
  if (!data.velocities) {
    set_temperature(settings_.temperature, masses_, settings_.units, atoms_in_all_, atoms_, ranks_);
  }
}

// Types, their pairs and masses of Lennard-Jones atoms; tables of the embedded atom method have their own.
void Simulation::use_data(const DataFile& data) {
  if (settings_.potential != Potential::lj) return;
  LjTypes types = types_of(data, settings_);
  if (types.count > 1) {
    settings_.lj_types = types.count;
  } else {
    settings_.epsilon = types.epsilon[0];
    settings_.sigma = types.sigma[0];
    settings_.mass = types.mass[0];
  }
  forces_ = make_forces(settings_, kernels_, types.count > 1 ? &types : nullptr);
  use_masses(forces_->masses());
}

RestartHeader Simulation::restart_header() const {
  RestartHeader header;
  header.step = steps_done_;
  header.atoms = atoms_in_all_;
  header.ranks = ranks_.count();
  header.threads = settings_.threads;
  header.half = settings_.half ? 1 : 0;
  header.mixed = settings_.precision == Precision::mixed ? 1 : 0;
  header.clusters = settings_.lists == Lists::clusters ? 1 : 0;
  header.cut = settings_.cut;
  header.skin = settings_.skin;
  header.time_step = settings_.time_step;
  const std::vector<double> parameters = forces_->parameters();
  std::vector<double> masses = masses_;
  masses.push_back(settings_.units.mvv_to_energy);
  header.forces = checksum(std::as_bytes(std::span(parameters)));
  header.masses = checksum(std::as_bytes(std::span(masses)));
  header.box = domain_.whole;
  if (thermostat_) {
    header.thermostat = thermostat_->rates();
    header.twice_kinetic = twice_kinetic_;
  }
  kernels_.name.copy(header.kernels.data(), header.kernels.size() - 1);
  return header;
}

void Simulation::save(const std::string& path) {
  finish_kick();
  std::vector<RestartAtom> own(atoms_.own);
  for (std::size_t i = 0; i < atoms_.own; ++i) {
    for (std::size_t d = 0; d < 3; ++d) {
      own[i].x[d] = atoms_.x[values * i + d];
      own[i].v[d] = atoms_.v[values * i + d];
      own[i].listed[d] = bins_->noted()[d][i];
    }
    own[i].id = atoms_.id[i];
    own[i].type = atoms_.type[i];
  }
  write_restart(path, restart_header(), own, ranks_);
}

// On another number of ranks, the order of sums and the choice of lists may differ.
void Simulation::check_same(const RestartHeader& there) const {
  const RestartHeader here = restart_header();
  const auto differs = [&](const std::string& what, double then, double now) {
    if (then == now) return;
    throw BadInput(settings_.resume_file + ": written with " + what + " " + std::to_string(then) + ", this run has " +
                   std::to_string(now) + ": it would not continue with identical results");
  };
  differs("mixed precision", there.mixed, here.mixed);
  differs("cut-off", there.cut, here.cut);
  differs("time step", there.time_step, here.time_step);
  if (there.forces != here.forces || there.masses != here.masses) {
    throw BadInput(settings_.resume_file + ": written with other " +
                   (there.forces != here.forces ? "forces (potential, epsilon, sigma or mixing rule)" : "masses") +
                   "; name what gave them: the data file, the table or the options");
  }
  if (there.ranks != here.ranks) return;
  differs("threads", there.threads, here.threads);
  differs("half lists", there.half, here.half);
  differs("lists of clusters", there.clusters, here.clusters);
  differs("skin", there.skin, here.skin);
  if (there.kernels != here.kernels) {
    throw BadInput(settings_.resume_file + ": written with the kernels " + std::string(there.kernels.data()) +
                   "; choose them with --kernels for identical results");
  }
}

// On as many ranks: the lists are made from the positions of the earlier lists, then atoms are moved to their current
// positions. On another number of ranks atoms go where their positions are now, and the run starts with new lists.
void Simulation::resume() {
  Restart restart;
  if (ranks_.rank() == 0) restart = read_restart(settings_.resume_file);
  std::vector<std::byte> head(sizeof restart.header);
  std::memcpy(head.data(), &restart.header, sizeof restart.header);
  ranks_.broadcast(head);
  std::memcpy(&restart.header, head.data(), sizeof restart.header);
  const RestartHeader& there = restart.header;
  make_grid(there.box);
  steps_done_ = there.step;
  atoms_in_all_ = there.atoms;
  const bool same_ranks = there.ranks == ranks_.count();
  check_same(there);
  std::vector<std::vector<std::byte>> parts(static_cast<std::size_t>(ranks_.count()));
  const RankOfPosition rank_of(there.box, ranks_.count());
  for (std::size_t part = 0; part < restart.parts.size(); ++part) {
    for (RestartAtom& atom : restart.parts[part]) {
      if (static_cast<std::size_t>(atom.type) >= forces_->types()) {
        throw BadInput(settings_.resume_file + ": atoms of type " + std::to_string(atom.type + 1) +
                       ", the potential has " + std::to_string(forces_->types()) + ": name the data file, too");
      }
      if (!same_ranks) {
        for (std::size_t d = 0; d < 3; ++d) atom.x[d] = there.box.wrapped(d, atom.x[d]);
      }
      append(parts[same_ranks ? part : static_cast<std::size_t>(rank_of(atom.x))], atom);
    }
  }
  const std::vector<RestartAtom> own = items_of<RestartAtom>(ranks_.scatter(parts));
  for (const RestartAtom& atom : own) {
    const auto& at = same_ranks ? atom.listed : atom.x;
    atoms_.add(atom.id, static_cast<std::uint8_t>(atom.type), at.data(), atom.v.data());
  }
  make_thermostat();
  if (thermostat_ && there.twice_kinetic > 0) {
    thermostat_->set_rates(there.thermostat);
    twice_kinetic_ = there.twice_kinetic;
  }
  if (!same_ranks) return;
  bins_->sort(atoms_);  // nothing moves: it only counts
  halo_->make(atoms_);
  list_neighbours();
  for (std::size_t i = 0; i < atoms_.own; ++i) {
    for (std::size_t d = 0; d < 3; ++d) atoms_.x[values * i + d] = own[i].x[d];
  }
  halo_->update_positions(atoms_);
  lists_there_ = true;
}

void Simulation::make_thermostat() {
  if (settings_.nvt_temperature == 0) return;
  if (atoms_in_all_ < 2) throw BadInput("--nvt: one atom has no temperature, because the box does not move");
  const double damping = settings_.nvt_damping > 0 ? settings_.nvt_damping : 100 * settings_.time_step;
  thermostat_.emplace(settings_.units.boltzmann * settings_.nvt_temperature, static_cast<double>(3 * atoms_in_all_ - 3),
                      damping, settings_.time_step);
  twice_kinetic_ = twice_kinetic(atoms_, masses_, settings_.units);
  ranks_.sum({&twice_kinetic_, 1});
}

void Simulation::start() {
  sums_wanted_ = true;
  if (!lists_there_) {
    rebuild();
    check_start();
    shares_ = true;
    if (settings_.offload == Offload::share) list_neighbours();
  }
  shares_ = true;
  compute_forces();
  if (settings_.exchange != Exchange::host && !chosen_later_) meet_coworkers();
  if (!coworker_) return;
  try {
    if (settings_.offload == Offload::force) lend_list();
    if (settings_.offload == Offload::list) use_bins_elsewhere();
  } catch (const CoworkerLost& error) {
    lose_coworker(error);
  }
}

void Simulation::step() {
  if (next_mode_ != settings_.offload) return step_into_next_mode();
  if (settings_.offload == Offload::list) return step_with_lists_elsewhere();
  drift();
  if (lists_due()) {
    if (settings_.offload == Offload::force) return step_with_forces_elsewhere();
    note_furthest();
    rebuild();
  } else {
    refresh_ghosts();
  }
  compute_forces();
  half_kick_due_ = true;
  ++steps_done_;
}

Thermo Simulation::thermo() {
  finish_kick();
  if (!sums_there_) {
    sums_wanted_ = true;
    compute_forces();
  }
  const Thermo now = measure(twice_kinetic(atoms_, masses_, settings_.units), pair_sums_, settings_.units,
                             domain_.whole.volume(), atoms_in_all_, ranks_);
  if (!std::isfinite(now.temperature) || !std::isfinite(now.energy)) {
    throw BrokenRun("at step " + std::to_string(steps_done_) +
                    " the energy is no longer a number: the time step is too large");
  }
  return now;
}

void Simulation::drift() {
  if (thermostat_) finish_kick();
  const Stopwatch watch(times_.integrate);
  if (thermostat_) scale_by_thermostat();
  const Array<double>* watched = settings_.offload == Offload::list ? &list_positions_ : nullptr;
  moved_ = kick_drift(half_step_per_mass_, settings_.time_step, half_kick_due_, settings_.threads, atoms_, watched);
  half_kick_due_ = false;
}

void Simulation::finish_kick() {
  if (!half_kick_due_) return;
  const Stopwatch watch(times_.integrate);
  kick(half_step_per_mass_, settings_.threads, atoms_);
  half_kick_due_ = false;
  if (!thermostat_) return;
  twice_kinetic_ = twice_kinetic(atoms_, masses_, settings_.units);
  ranks_.sum({&twice_kinetic_, 1});
  scale_by_thermostat();
}

void Simulation::scale_by_thermostat() {
  scale_velocities(thermostat_->half_step(twice_kinetic_), settings_.threads, atoms_);
}

void Simulation::refresh_ghosts() {
  const Stopwatch watch(times_.communicate);
  halo_->update_positions(atoms_);
}

bool Simulation::lists_due() {
  if ((steps_done_ + 1) % settings_.interval != 0) return false;
  if (settings_.trigger == Trigger::interval) return true;
  const Stopwatch watch(times_.neighbour);
  double furthest = displacement();
  ranks_.maximum({&furthest, 1});
  return 2 * furthest > settings_.skin;
}

double Simulation::displacement() const {
  double most = 0;
  const double *x0 = bins_->noted()[0].data(), *y0 = bins_->noted()[1].data(), *z0 = bins_->noted()[2].data();
  for (std::size_t i = 0; i < atoms_.own; ++i) {
    const double dx = atoms_.x[values * i] - x0[i], dy = atoms_.x[values * i + 1] - y0[i],
                 dz = atoms_.x[values * i + 2] - z0[i];
    most = std::max(most, dx * dx + dy * dy + dz * dz);
  }
  return std::sqrt(most);
}

void Simulation::note_furthest() {
  if (rebuilds_ == 0 || margin_ > 0) return;  // lists made elsewhere are checked in every step
  const Stopwatch watch(times_.neighbour);
  furthest_ = std::max(furthest_, displacement());
}

void Simulation::rebuild() {
  if (settings_.offload == Offload::share && lost_on_any_rank()) go_on_without();
  if (list_lent_) std::swap(list_, list_before_);
  list_lent_ = false;
  {
    const Stopwatch watch(times_.communicate);
    migrate(domain_, ranks_, atoms_);
  }
  {
    const Stopwatch watch(times_.sort);
    bins_->sort(atoms_);
    if (coworkers_exchange_) order_forces();
  }
  {
    const Stopwatch watch(times_.communicate);
    halo_->make(atoms_);
  }
  const Stopwatch watch(times_.neighbour);
  list_neighbours();
  ++rebuilds_;
}

void Simulation::list_neighbours() {
  bins_->note_positions(atoms_);
  if (settings_.offload == Offload::list) {
    keep_positions(atoms_, list_positions_);
    strayed_ = 0;
  }
  share_atoms();
  if (settings_.lists == Lists::clusters) {
    build_clusters(*bins_, settings_.cut + settings_.skin, settings_.threads, kernels_, list_, settings_.precision);
  } else {
    build_list(*bins_, shared_from_, settings_.cut + settings_.skin, half_lists(), settings_.threads, kernels_, list_,
               settings_.precision);
  }
  lost_coworker_.reset();
}

void Simulation::compute_forces() {
  const Stopwatch watch(times_.force);
  const PairSums sums =
      shared_from_ < atoms_.own ? compute_shared_forces() : forces_->compute(list_, *halo_, sums_wanted_, atoms_);
  sums_there_ = sums_wanted_;
  if (sums_wanted_) pair_sums_ = sums;
  sums_wanted_ = false;
}

// Overlapping atoms would have forces that no time step can follow: they are reported before the first step.
void Simulation::check_start() {
  const double closest_allowed = 1e-3 * (settings_.potential == Potential::lj ? settings_.sigma : settings_.cut);
  const auto check = [&](std::size_t i, std::size_t j) {
    double squared = 0;
    for (std::size_t d = 0; d < 3; ++d) {
      const double apart = atoms_.x[values * i + d] - atoms_.x[values * j + d];
      squared += apart * apart;
    }
    if (squared >= closest_allowed * closest_allowed) return;
    const std::string other =
        j < atoms_.own ? "atom " + std::to_string(atoms_.id[j]) : "an atom at the other side of a boundary";
    throw BadInput("atom " + std::to_string(atoms_.id[i]) + " and " + other + " overlap: they are " +
                   std::to_string(std::sqrt(squared)) + " apart");
  };
  for (const NeighbourBlock& block : list_.blocks) {
    for (std::size_t i = block.first; i < block.last; ++i) {
      for (std::uint64_t k = block.begin[i - block.first]; k < block.begin[i - block.first + 1]; ++k) {
        check(i, static_cast<std::size_t>(block.neighbours[k]));
      }
    }
  }
  list_.clusters.each_pair(check);
}

}  // namespace md

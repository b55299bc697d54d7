#include "md/simulation.h"

#include <cmath>

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
}

Simulation::Simulation(const Settings& settings, Ranks& ranks, std::unique_ptr<Coworker> coworker)
    : settings_(settings),
      ranks_(ranks),
      kernels_(choose_kernels(settings.kernels)),
      forces_(make_forces(settings, kernels_)),
      coworker_(std::move(coworker)) {
  chosen_later_ = settings_.offload == Offload::automatic;
  if (!coworker_ || chosen_later_) settings_.offload = Offload::none;
  next_mode_ = settings_.offload;
  settings_.lists = kind_of_lists(settings);
  const std::string refusal = coworker_ ? why_not(settings.offload, settings) : "";
  if (!refusal.empty()) throw BadInput(refusal);
  if (coworker_ && (chosen_later_ || settings_.offload == Offload::list) && !settings.resume_file.empty()) {
    throw BadInput("--offload list and auto do not resume");
  }
  settings_.mass = forces_->mass();
  settings_.cut = forces_->cut();
  half_step_per_mass_ = 0.5 * settings_.time_step / (settings_.mass * settings_.units.mvv_to_energy);
  if (!settings_.resume_file.empty()) {
    resume(read_restart(settings_.resume_file, ranks.rank()));
  } else if (!settings_.data_file.empty()) {
    read_data();
  } else {
    create_lattice();
  }
}

std::string Simulation::why_not(Offload mode, const Settings& settings) {
  if (mode != Offload::force) return "";
  if (settings.potential == Potential::eam) {
    return "--offload force computes Lennard-Jones only; for EAM use --offload list, whose lists do not depend on the "
           "potential, or auto";
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
  halo_ = std::make_unique<Halo>(domain_, ranks_, list_cut);
  bins_ = std::make_unique<Bins>(domain_.own, list_cut);
}

double Simulation::energy_per_v2() const {
  return settings_.mass * settings_.units.mvv_to_energy / settings_.units.boltzmann;
}

void Simulation::create_lattice() {
  make_grid(lattice_box(settings_.cells, settings_.density));
  add_lattice(settings_.cells, settings_.density, settings_.seed, domain_, atoms_);
  double count = static_cast<double>(atoms_.own);
  ranks_.sum({&count, 1});
  atoms_in_all_ = static_cast<std::int64_t>(count);
  set_temperature(settings_.temperature, energy_per_v2(), atoms_in_all_, atoms_, ranks_);
}

void Simulation::read_data() {
  const DataFile data = read_data_file(settings_.data_file);
  if (settings_.potential == Potential::lj && !data.mass.empty()) {
    for (const double mass : data.mass) {
      if (mass != data.mass[0])
        throw BadInput(settings_.data_file + ": types of different masses; offpath-md computes with one mass");
    }
    settings_.mass = data.mass[0];
    half_step_per_mass_ = 0.5 * settings_.time_step / (settings_.mass * settings_.units.mvv_to_energy);
  }
  make_grid(data.box);
  for (const DataAtom& atom : data.atoms) {
    bool ours = true;
    for (std::size_t d = 0; d < 3; ++d)
      ours = ours && atom.x[d] >= domain_.own.low[d] && atom.x[d] < domain_.own.high[d];
    if (atom.type >= forces_->types()) {
      throw BadInput(settings_.data_file + ": atom " + std::to_string(atom.id) + " has type " +
                     std::to_string(atom.type + 1) + ", the potential has " + std::to_string(forces_->types()));
    }
    const std::array<double, 3> velocity = data.velocities ? atom.v : seeded_velocity(atom.id, settings_.seed);
    if (ours) atoms_.add(atom.id, atom.type, atom.x.data(), velocity.data());
  }
  atoms_in_all_ = static_cast<std::int64_t>(data.atoms.size());
  if (!data.velocities) set_temperature(settings_.temperature, energy_per_v2(), atoms_in_all_, atoms_, ranks_);
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
  header.box = domain_.whole;
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

// The lists are made from the positions of the earlier lists, then atoms are moved to their current positions.
void Simulation::resume(const Restart& restart) {
  make_grid(restart.header.box);
  steps_done_ = restart.header.step;
  atoms_in_all_ = restart.header.atoms;
  const RestartHeader& there = restart.header;
  const RestartHeader here = restart_header();
  const auto differs = [&](const std::string& what, double then, double now) {
    if (then == now) return;
    throw BadInput(settings_.resume_file + ": written with " + what + " " + std::to_string(then) + ", this run has " +
                   std::to_string(now) + ": it would not continue with identical results");
  };
  differs("ranks", there.ranks, here.ranks);
  differs("threads", there.threads, here.threads);
  differs("half lists", there.half, here.half);
  differs("mixed precision", there.mixed, here.mixed);
  differs("lists of clusters", there.clusters, here.clusters);
  differs("cut-off", there.cut, here.cut);
  differs("skin", there.skin, here.skin);
  differs("time step", there.time_step, here.time_step);
  if (there.kernels != here.kernels) {
    throw BadInput(settings_.resume_file + ": written with the kernels " + std::string(there.kernels.data()) +
                   "; choose them with --kernels for identical results");
  }
  for (const RestartAtom& atom : restart.own) {
    atoms_.add(atom.id, static_cast<std::uint8_t>(atom.type), atom.listed.data(), atom.v.data());
  }
  bins_->sort(atoms_);  // nothing moves: it only counts
  halo_->make(atoms_);
  list_neighbours();
  for (std::size_t i = 0; i < atoms_.own; ++i) {
    for (std::size_t d = 0; d < 3; ++d) atoms_.x[values * i + d] = restart.own[i].x[d];
  }
  halo_->update_positions(atoms_);
  lists_there_ = true;
}

void Simulation::start() {
  if (!lists_there_) {
    rebuild();
    check_start();
  }
  sums_wanted_ = true;
  compute_forces();
  if (!coworker_) return;
  try {
    if (settings_.offload == Offload::force) {
      coworker_->use_list(list_.blocks);
      list_lent_ = true;
    }
    if (settings_.offload == Offload::list) coworker_->use_bins(*bins_, atoms_.own);
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
  const Thermo now =
      measure(atoms_, pair_sums_, settings_.mass, settings_.units, domain_.whole.volume(), atoms_in_all_, ranks_);
  if (!std::isfinite(now.temperature) || !std::isfinite(now.energy)) {
    throw BrokenRun("at step " + std::to_string(steps_done_) +
                    " the energy is no longer a number: the time step is too large");
  }
  return now;
}

void Simulation::drift() {
  const Stopwatch watch(times_.integrate);
  const Array<double>* watched = settings_.offload == Offload::list ? &list_positions_ : nullptr;
  gone_ = kick_drift(half_step_per_mass_, settings_.time_step, half_kick_due_, settings_.threads, atoms_, watched);
  half_kick_due_ = false;
}

void Simulation::finish_kick() {
  const Stopwatch watch(times_.integrate);
  if (half_kick_due_) kick(half_step_per_mass_, settings_.threads, atoms_);
  half_kick_due_ = false;
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
  if (list_lent_) std::swap(list_, list_before_);
  list_lent_ = false;
  {
    const Stopwatch watch(times_.communicate);
    migrate(domain_, ranks_, atoms_);
  }
  {
    const Stopwatch watch(times_.sort);
    bins_->sort(atoms_);
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
  if (settings_.lists == Lists::clusters) {
    return build_clusters(*bins_, settings_.cut + settings_.skin, settings_.threads, kernels_, list_,
                          settings_.precision);
  }
  build_list(*bins_, atoms_.own, settings_.cut + settings_.skin, half_lists(), settings_.threads, kernels_, list_,
             settings_.precision);
}

void Simulation::compute_forces() {
  const Stopwatch watch(times_.force);
  const PairSums sums = forces_->compute(list_, *halo_, sums_wanted_, atoms_);
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

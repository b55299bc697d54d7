! A team of tasks from a communicator of MPI. Compile it after offpath.f90, with MPI's compiler.
!
!     call ofp_mpi_team(MPI_COMM_WORLD, lane, lanes, team)  ! by all ranks
!     call tasks%open(session, lane, lanes, team)
!
! SPDX-License-Identifier: Apache-2.0
module offpath_mpi
  use, intrinsic :: iso_c_binding
  use mpi
  implicit none
  private
  public :: ofp_mpi_team

contains

  ! Collective. `lane` is the rank, `team` a name that no other run has: at least 36 characters. `ierror`: MPI's code;
  ! without it MPI's error handler decides.
  subroutine ofp_mpi_team(communicator, lane, lanes, team, ierror)
    integer, intent(in) :: communicator
    integer(c_int32_t), intent(out) :: lane, lanes
    character(len=*), intent(out) :: team
    integer, intent(out), optional :: ierror
    integer(c_int64_t) :: random(2)
    integer :: rank, ranks, code, unit, status
    team = ""
    rank = 0
    ranks = 0
    call MPI_Comm_rank(communicator, rank, code)
    if (code == MPI_SUCCESS) call MPI_Comm_size(communicator, ranks, code)
    if (code == MPI_SUCCESS .and. rank == 0) then
      open (newunit=unit, file="/dev/urandom", access="stream", form="unformatted", action="read", iostat=status)
      if (status == 0) then
        read (unit, iostat=status) random
        close (unit)
      end if
      if (status == 0) write (team, "(a, z16.16, z16.16)", iostat=status) "mpi-", random
      if (status /= 0) team = ""
    end if
    if (code == MPI_SUCCESS) call MPI_Bcast(team, len(team), MPI_CHARACTER, 0, communicator, code)
    if (code == MPI_SUCCESS .and. team == "") code = MPI_ERR_OTHER
    lane = int(rank, c_int32_t)
    lanes = int(ranks, c_int32_t)
    if (present(ierror)) then
      ierror = code
    else if (code /= MPI_SUCCESS) then
      error stop "offpath: no team could be made of the communicator"
    end if
  end subroutine

end module offpath_mpi

! A team of all ranks, whose functions pass messages round. Rank 0 prints how many lanes it has.
program mpi_team
  use, intrinsic :: iso_c_binding
  use mpi
  use offpath
  use offpath_tasks
  use offpath_mpi
  implicit none
  type, bind(c) :: step  ! of the plug-in's function "messages"
    integer(c_int32_t) :: kind = 0, lane = 0, tag = 0, zero = 0
    integer(c_int64_t) :: bytes = 1000, seed = 0
  end type
  type, bind(c) :: outcome
    integer(c_int32_t) :: code = 0, differs = 0
    integer(c_int64_t) :: bytes = 0
  end type
  type(ofp_session) :: session
  type(ofp_tasks) :: tasks
  type(ofp_task) :: task
  type(ofp_segment) :: segment
  type(step), target :: script(2)
  type(outcome), pointer :: outcomes(:)
  integer(c_int32_t) :: lane, lanes, left
  character(len=40) :: team
  integer :: ierror

  call MPI_Init(ierror)
  call ofp_mpi_team(MPI_COMM_WORLD, lane, lanes, team)
  call session%connect()
  call tasks%open(session, lane, lanes, team)
  call segment%open(session, 32_c_int64_t)
  call c_f_pointer(segment%data(), outcomes, [2])
  left = modulo(lane - 1, lanes)
  script(1) = step(kind=0, lane=modulo(lane + 1, lanes), seed=lane)
  script(2) = step(kind=1, lane=left, seed=left)
  task = tasks%submit("t/messages", outputs=[ofp_task_output("out", segment%data(), 32_c_int64_t)], &
                      arguments=c_loc(script), arguments_bytes=64_c_int64_t)
  call task%wait()
  if (any(outcomes%code /= 0) .or. any(outcomes%differs /= 0)) error stop "a message did not arrive"
  if (lane == 0) print "(a, i0, a)", "a team of ", lanes, " lanes"
  call MPI_Barrier(MPI_COMM_WORLD, ierror)  ! messages end with their sender's session
  call task%free()
  call tasks%close()
  call segment%close()
  call session%close()
  call MPI_Finalize(ierror)
end program

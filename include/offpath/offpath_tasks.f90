! Tasks (docs/guides/tasks.md): functions of the agent's plug-ins over memory of this program, in module offpath_tasks.
! Compile it after offpath.f90.
!
!     type(ofp_segment) :: forces                                       ! memory that the agent may write
!     type(ofp_tasks) :: tasks
!     type(ofp_task) :: task
!     call forces%open(session, 24 * n)
!     call tasks%open(session, lane=rank, lanes=ranks)
!     task = tasks%submit("md/force", [ofp_task_input("x", c_loc(x), 24 * n)], &
!                         [ofp_task_output("f", forces%data(), 24 * n)])
!     call task%wait_pulled()                                           ! x may change again
!     call task%wait()                                                  ! forces are there
!     call task%free()
!
! Positions in lists count from 1.
!
! SPDX-License-Identifier: Apache-2.0
module offpath_tasks
  use, intrinsic :: iso_c_binding
  use offpath
  use offpath_calls
  implicit none
  private

  ! Memory that the agent may write to, for outputs of tasks: c_f_pointer(segment%data(), f, [3, n]).
  type, public :: ofp_segment
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: open => segment_open
    procedure :: data => segment_data
    procedure :: close => segment_close
  end type

  ! Inputs that follow each other under one name are pieces of one. With a version an input stays on the agent.
  type, public :: ofp_task_input
    character(len=255) :: name = ""
    type(c_ptr) :: data = c_null_ptr
    integer(c_int64_t) :: bytes = 0
    integer(c_int64_t) :: version = 0
  end type

  type, public :: ofp_task_output
    character(len=255) :: name = ""
    type(c_ptr) :: data = c_null_ptr        ! in a segment; c_null_ptr: it is not pushed
    integer(c_int64_t) :: bytes = 0         ! at most
    integer(c_int64_t) :: version = 0
  end type

  ! A session of tasks: functions of plug-ins over memory of this program.
  type, public :: ofp_tasks
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: open => tasks_open
    procedure :: submit => tasks_submit
    procedure :: close => tasks_close
  end type

  type, public :: ofp_task
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: wait => task_wait
    procedure :: wait_pulled => task_wait_pulled
    procedure :: output_bytes => task_output_bytes
    procedure :: cancel => task_cancel
    procedure :: free => task_free
  end type

  type, bind(c) :: c_task_input
    type(c_ptr) :: name, data
    integer(c_int64_t) :: bytes = 0, version = 0, changed_from = 0, changed_at = 0, changed_bytes = 0
  end type

  type, bind(c) :: c_task_output
    type(c_ptr) :: name, data
    integer(c_int64_t) :: bytes = 0, version = 0
  end type

  type, bind(c) :: c_tasks_options
    integer(c_int32_t) :: struct_bytes = 0, lane = 0, lanes = 0, tasks_max = 0
    type(c_ptr) :: plugins = c_null_ptr
    integer(c_int32_t) :: plugins_count = 0, zero = 0
    type(c_ptr) :: team = c_null_ptr
  end type

  type, bind(c) :: c_task_request
    integer(c_int32_t) :: struct_bytes = 0, flags = 0
    type(c_ptr) :: function = c_null_ptr, arguments = c_null_ptr
    integer(c_int64_t) :: arguments_bytes = 0
    type(c_ptr) :: inputs = c_null_ptr, outputs = c_null_ptr
    integer(c_int32_t) :: inputs_count = 0, outputs_count = 0
    type(c_ptr) :: after = c_null_ptr
    integer(c_int32_t) :: after_count = 0, zero = 0
    integer(c_int64_t) :: wait_ns = 0
  end type

  interface
    type(c_ptr) function c_segment_data(segment) bind(c, name="ofp_segment_data")
      import :: c_ptr
      type(c_ptr), value :: segment
    end function
    integer(c_int) function c_tasks_open(channel, options, tasks, error) bind(c, name="ofp_tasks_open")
      import :: c_int, c_ptr, c_tasks_options, ofp_error
      type(c_ptr), value :: channel
      type(c_tasks_options), intent(in) :: options
      type(c_ptr), intent(out) :: tasks
      type(ofp_error), intent(inout) :: error
    end function
    integer(c_int) function c_task_submit(tasks, request, task, error) bind(c, name="ofp_task_submit")
      import :: c_int, c_ptr, c_task_request, ofp_error
      type(c_ptr), value :: tasks
      type(c_task_request), intent(in) :: request
      type(c_ptr), intent(out) :: task
      type(ofp_error), intent(inout) :: error
    end function
    integer(c_int) function c_task_output_bytes(task, place, bytes, error) bind(c, name="ofp_task_output_bytes")
      import :: c_int, c_int32_t, c_int64_t, c_ptr, ofp_error
      type(c_ptr), value :: task
      integer(c_int32_t), value :: place
      integer(c_int64_t), intent(out) :: bytes
      type(ofp_error), intent(inout) :: error
    end function
    integer(c_int) function c_task_cancel(task, error) bind(c, name="ofp_task_cancel")
      import :: c_int, c_ptr, ofp_error
      type(c_ptr), value :: task
      type(ofp_error), intent(inout) :: error
    end function
  end interface
  procedure(c_makes), bind(c, name="ofp_alloc") :: c_alloc
  procedure(c_ends), bind(c, name="ofp_free") :: c_free
  procedure(c_ends), bind(c, name="ofp_tasks_close") :: c_tasks_close
  procedure(c_ends), bind(c, name="ofp_task_free") :: c_task_free
  procedure(c_waits), bind(c, name="ofp_task_wait") :: c_task_wait
  procedure(c_waits), bind(c, name="ofp_task_wait_pulled") :: c_task_wait_pulled

contains

  subroutine segment_open(segment, session, bytes, stat)
    class(ofp_segment), intent(inout) :: segment
    type(ofp_session), intent(in) :: session
    integer(c_int64_t), intent(in) :: bytes
    integer, intent(out), optional :: stat
    type(ofp_error) :: error
    call settle(c_alloc(session%handle, bytes, segment%handle, error), error, stat)
  end subroutine

  type(c_ptr) function segment_data(segment) result(data)
    class(ofp_segment), intent(in) :: segment
    data = c_segment_data(segment%handle)
  end function

  subroutine segment_close(segment)
    class(ofp_segment), intent(inout) :: segment
    call c_free(segment%handle)
    segment%handle = c_null_ptr
  end subroutine

  ! `lane` and `lanes`: tasks run in order, on one worker. `team`: functions of its lanes send each other messages
  ! (offpath_mpi.f90 makes one of a communicator).
  subroutine tasks_open(tasks, session, lane, lanes, team, tasks_max, stat)
    class(ofp_tasks), intent(inout) :: tasks
    type(ofp_session), intent(in) :: session
    integer(c_int32_t), intent(in), optional :: lane, lanes, tasks_max
    character(len=*), intent(in), optional :: team
    integer, intent(out), optional :: stat
    character(kind=c_char, len=:), allocatable, target :: team_text
    type(c_tasks_options) :: options
    type(ofp_error) :: error
    options%struct_bytes = int(c_sizeof(options), c_int32_t)
    if (present(lane)) then
      options%lane = lane
      options%lanes = lane + 1
    end if
    if (present(lanes)) options%lanes = lanes
    if (present(tasks_max)) options%tasks_max = tasks_max
    if (present(team)) then
      team_text = terminated(team)
      options%team = c_loc(team_text)
    end if
    call settle(c_tasks_open(session%handle, options, tasks%handle, error), error, stat)
  end subroutine

  ! `name`: "plug-in/function". Until the inputs are pulled they must not change; outputs are the agent's until the
  ! task is over. `after`: tasks that succeed before this one begins. `wait_ns`: for all of it.
  type(ofp_task) function tasks_submit(tasks, name, inputs, outputs, arguments, arguments_bytes, after, wait_ns, &
                                       stat) result(task)
    class(ofp_tasks), intent(in) :: tasks
    character(len=*), intent(in) :: name
    type(ofp_task_input), intent(in), optional :: inputs(:)
    type(ofp_task_output), intent(in), optional :: outputs(:)
    type(c_ptr), intent(in), optional :: arguments
    integer(c_int64_t), intent(in), optional :: arguments_bytes, wait_ns
    type(ofp_task), intent(in), optional :: after(:)
    integer, intent(out), optional :: stat
    character(kind=c_char, len=:), allocatable, target :: function_text
    character(kind=c_char, len=256), allocatable, target :: input_names(:), output_names(:)
    type(c_task_input), allocatable, target :: input_list(:)
    type(c_task_output), allocatable, target :: output_list(:)
    type(c_ptr), allocatable, target :: before(:)
    type(c_task_request) :: request
    type(ofp_error) :: error
    integer :: i
    request%struct_bytes = int(c_sizeof(request), c_int32_t)
    function_text = terminated(name)
    request%function = c_loc(function_text)
    if (present(arguments)) request%arguments = arguments
    if (present(arguments_bytes)) request%arguments_bytes = arguments_bytes
    if (present(wait_ns)) request%wait_ns = wait_ns
    if (present(inputs)) then
      if (size(inputs) > 0) then
        allocate (input_names(size(inputs)), input_list(size(inputs)))
        do i = 1, size(inputs)
          input_names(i) = terminated(inputs(i)%name)
          input_list(i) = c_task_input(c_loc(input_names(i)), inputs(i)%data, inputs(i)%bytes, inputs(i)%version)
        end do
        request%inputs = c_loc(input_list)
        request%inputs_count = size(inputs, kind=c_int32_t)
      end if
    end if
    if (present(outputs)) then
      if (size(outputs) > 0) then
        allocate (output_names(size(outputs)), output_list(size(outputs)))
        do i = 1, size(outputs)
          output_names(i) = terminated(outputs(i)%name)
          output_list(i) = c_task_output(c_loc(output_names(i)), outputs(i)%data, outputs(i)%bytes, outputs(i)%version)
        end do
        request%outputs = c_loc(output_list)
        request%outputs_count = size(outputs, kind=c_int32_t)
      end if
    end if
    if (present(after)) then
      if (size(after) > 0) then
        allocate (before(size(after)))
        do i = 1, size(after)
          before(i) = after(i)%handle
        end do
        request%after = c_loc(before)
        request%after_count = size(after, kind=c_int32_t)
      end if
    end if
    call settle(c_task_submit(tasks%handle, request, task%handle, error), error, stat)
  end function

  subroutine tasks_close(tasks)
    class(ofp_tasks), intent(inout) :: tasks
    call c_tasks_close(tasks%handle)
    tasks%handle = c_null_ptr
  end subroutine

  ! Until the task is over, `wait_ns` at most; then `stat` is OFP_WOULD_BLOCK, or the program stops.
  subroutine task_wait(task, wait_ns, stat)
    class(ofp_task), intent(in) :: task
    integer(c_int64_t), intent(in), optional :: wait_ns
    integer, intent(out), optional :: stat
    type(ofp_error) :: error
    call settle(c_task_wait(task%handle, wait_or_forever(wait_ns), error), error, stat)
  end subroutine

  ! The same until its inputs are this program's again.
  subroutine task_wait_pulled(task, wait_ns, stat)
    class(ofp_task), intent(in) :: task
    integer(c_int64_t), intent(in), optional :: wait_ns
    integer, intent(out), optional :: stat
    type(ofp_error) :: error
    call settle(c_task_wait_pulled(task%handle, wait_or_forever(wait_ns), error), error, stat)
  end subroutine

  ! How many bytes the function has made of this output.
  integer(c_int64_t) function task_output_bytes(task, place, stat) result(bytes)
    class(ofp_task), intent(in) :: task
    integer, intent(in) :: place
    integer, intent(out), optional :: stat
    type(ofp_error) :: error
    bytes = 0
    call settle(c_task_output_bytes(task%handle, int(place - 1, c_int32_t), bytes, error), error, stat)
  end function

  subroutine task_cancel(task, stat)
    class(ofp_task), intent(in) :: task
    integer, intent(out), optional :: stat
    type(ofp_error) :: error
    call settle(c_task_cancel(task%handle, error), error, stat)
  end subroutine

  ! Cancels it if it is not over.
  subroutine task_free(task)
    class(ofp_task), intent(inout) :: task
    call c_task_free(task%handle)
    task%handle = c_null_ptr
  end subroutine

end module offpath_tasks

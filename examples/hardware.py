"""Learning on a device that is not simulated here: a servo motor behind a socket, with its own clock and lost messages.

    python examples/hardware.py

`Servo` stands for the device; replace it by yours. It holds the last voltage, measures its angle and speed with its own
clock, which does not tick evenly, and one reply in fifty is lost. `drive` runs one episode on it: that function is all that
purectrl needs. A motor beyond two turns is stopped, and the episode ends.
"""

import json
import socket
import threading
from dataclasses import replace

import numpy as np

import purectrl as pc
from purectrl.control import FitSettings, PlanSettings

PERIOD, TARGET, SECONDS = 0.05, 1.0, 2.0


class Servo(threading.Thread):
    """The device: dω/dt = 40 u − 8 ω, dθ/dt = ω. A line with a voltage is answered by a line with time, angle and speed."""

    def __init__(self, seed=0, lost=0.02):
        super().__init__(daemon=True)
        self.random, self.lost = np.random.default_rng(seed), lost
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = self.socket.getsockname()

    def run(self):
        """Serves one connection after the other; each is one episode, which starts at rest near angle zero."""
        while True:
            connection, _ = self.socket.accept()
            with connection:
                try:
                    self.serve(connection)
                except ConnectionError:  # the other side has gone; the next one may come
                    continue

    def serve(self, connection):
        """One episode."""
        t, angle, speed = 0.0, self.random.uniform(-0.2, 0.2), 0.0
        for message in connection.makefile("r"):
            voltage, elapsed = float(message), PERIOD * self.random.uniform(0.9, 1.1)
            for _ in range(20):
                angle, speed = angle + elapsed / 20 * speed, speed + elapsed / 20 * (40 * voltage - 8 * speed)
            t += elapsed
            if self.random.uniform() > self.lost:
                connection.sendall((json.dumps([t, angle, speed]) + "\n").encode())


def exchange(device, voltage):
    """Sends a voltage and returns (time, angle, speed), or None if the reply is lost."""
    device.sendall(f"{voltage}\n".encode())
    reply = b""
    try:
        while not reply.endswith(b"\n"):
            received = device.recv(256)
            if not received:
                raise ConnectionError("the device has closed the connection")
            reply += received
    except TimeoutError:
        return None
    return json.loads(reply.splitlines()[-1])


def drive_over(address, timeout=0.1, patience=10):
    """The function that runs one episode on the device at `address`; `patience` lost replies in a row end it."""

    def drive(control, times):
        t, u, lost, seen = 0.0, 0.0, 0, []
        with socket.create_connection(address, timeout=timeout) as device:
            try:
                while len(seen) < len(times) and lost < patience:
                    reply = exchange(device, u)
                    if reply is None:  # hold the last voltage
                        lost += 1
                        continue
                    t, *x = reply
                    lost = 0
                    if t > SECONDS:
                        break
                    u = float(control(x, t)[0])
                    if t >= times[len(seen)]:
                        seen.append((t, x, u))
            finally:
                device.sendall(b"0.0\n")  # whatever happened, the motor stops
        moments, states, voltages = (np.array(column) for column in zip(*seen, strict=True))
        return pc.problems.Episode(states, voltages[:, None], t=moments)

    return drive


def problem(host: str = "127.0.0.1", port: int = 5555):
    """A servo motor that should turn to angle 1.

    Main arguments:
        host, port: where the device listens.
    """
    return pc.problems.continuous(
        name="servo",
        horizon=SECONDS,
        rollout=drive_over((host, port)),
        state_dim=2,
        reward=lambda x, u: -((x[0] - TARGET) ** 2) - 0.01 * u[0] ** 2,
        control_low=[-1.0],
        control_high=[1.0],
        limits={0: (-12.0, 12.0)},
        control_period=PERIOD,
        measurements=400,
        eval_episodes=2,
    )


def learn(seed=0, fit_steps=1500, plan_steps=200, lost=0.02):
    """PURE_ENODE on the device, with settings for two dimensions."""
    servo = Servo(lost=lost)
    servo.start()
    motor = problem(*servo.address)
    algorithm = pc.pure_enode(motor)
    fit = FitSettings(steps=fit_steps, finetune_steps=fit_steps // 2, learning_rate=2e-3, max_gap=0.08)
    learner = replace(algorithm.learner, fit=fit, plan=PlanSettings(steps=plan_steps, horizon=1.0, discount=1.0))
    return pc.run(motor, replace(algorithm, learner=learner), seed=seed, max_seconds=600)


def main():
    result = learn()
    ledger = result.ledger
    print(f"{ledger.measurements} measurements, {ledger.rollouts} rollouts, {ledger.updates} updates")
    for record in result.records:
        if "eval_return" in record:
            print(f"update {record['updates']}: return {record['eval_return']:.3f} per episode of {SECONDS:g} s")
    for angle in (0.0, 0.9, 1.1):
        print(f"voltage at angle {angle}, at rest: {result.policy([angle, 0.0])[0]:.2f}")


if __name__ == "__main__":
    main()

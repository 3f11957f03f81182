"""``python -m freetrain.doctor FOLDER``: what the one-step run does on its node."""

from freetrain.own_packages import prefer_own_packages

if __name__ == "__main__":
    prefer_own_packages()
    from freetrain.doctor.probe import main

    main()

"""What the commands of users do: submit, change, status, holes, drill."""
